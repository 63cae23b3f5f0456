-- Which messages of a page have a parked key.
select t.seq
  from {table} t
 where t.seq between ? and ?
   and exists (select 1 from penstock_lines l where l.subscription_id = ? and l.key = cast(t.key as text) and l.alone = 0)
 order by t.seq
