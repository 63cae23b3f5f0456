-- When the next job may start, after some leases have begun.
insert into {schema}.group_starts (queue_id, group_key, whole, next)
select {queue}, case when i.whole then '' else {group} end, i.whole, {start_at} + i.pace * t.taken
  from (select count(*) as taken from {schema}.leases force index (leases_lease) where queue_id = {queue} and {lease in leases}) t
 cross join {limits}
   and i.pace > 0 and t.taken > 0
on duplicate key update next = values(next)
