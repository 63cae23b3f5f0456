-- Claims that take turns with all others of the queue. The clock is read before they look; are there leases that have ended, may nothing be claimed
-- for now, and does the next claim take turns as well? Has the queue policies? A clock that was set back may be before {checked}.
select clock_timestamp(), {checks} and exists (select from {schema}.leases l where l.queue_id = q.id and l.until > {checked} and l.until <= (select clock_timestamp())),
       q.paused or q.max_running > 0 and q.max_running <= (select count(*) from {schema}.leases l where l.queue_id = q.id and l.until > least({checked}, (select clock_timestamp()))),
       q.max_running > 0 or q.policies > 1 or (select min(t.turn) from {schema}.turns t where t.inbox_id = - q.id and t.turn < 64) is null, q.policies > 0
  from {schema}.queues q
 where q.id = {queue}
   for update of q
