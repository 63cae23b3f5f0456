-- What a claim asks before it looks, by a statement behind the lock: the clock, are there leases that have ended, how many
-- jobs run, and how many may? Which policies has the queue? No lease ends before {checked}, unless the clock was set back.
select utc_timestamp(6), {ended},
       q.paused, q.policies, q.max_running, case when q.max_running = 0 then 0 else (select count(*) from {schema}.leases l force index (leases_second) where l.queue_id = q.id and l.second >= to_seconds(least(timestamp({checked}), utc_timestamp(6))) and l.until > least(timestamp({checked}), utc_timestamp(6))) end
  from {schema}.queues q
 where q.id = {queue}
