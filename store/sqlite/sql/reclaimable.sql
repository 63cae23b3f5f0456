-- The next message that no subscription needs. Messages that have an entry stay.
select t.seq
  from {table} t
 where t.seq > {after} and t.seq <= {last} and t.seq not in ({needed})
 order by t.seq
 limit 1
