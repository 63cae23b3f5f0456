-- When the next job may start, after some leases have begun.
insert into penstock_group_starts (queue_id, group_key, whole, next)
select {queue}, case when i.whole then '' else {group} end, i.whole, {start_at} + i.pace * t.taken
  from (select count(*) as taken from penstock_leases where {lease in leases}) t
 cross join {limits}
   and i.pace > 0 and t.taken > 0
   on conflict (queue_id, group_key, whole) do update set next = excluded.next
