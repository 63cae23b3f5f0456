-- When the next job may start, after some leases have begun.
insert into {schema}.group_starts (queue_id, group_key, whole, n, next)
select {queue}, case when i.whole then '' else {group} end, i.whole, coalesce(b.n, 0) + 1, {start_at} + i.pace * t.taken
  from (select count(*) as taken from {schema}.leases where queue_id - {queue} = 0 and {lease in leases}) t
 cross join {limits}
   and i.pace > 0 and t.taken > 0
