-- As lock_queue, of a claim that runs side by side with others: it locks one of the queue's turns, and claims of a group that is
-- limited the same one. What locks all of them waits for it.
select clock_timestamp(), {checks} and exists (select from {schema}.leases l where l.queue_id = q.id and l.until > {checked} and l.until <= (select clock_timestamp())),
       q.paused, q.max_running > 0 or q.policies > 1, q.policies > 0
  from {schema}.queues q
  join {schema}.turns t on t.inbox_id = any (array[- q.id]) and t.turn = {turn}
 where q.id = {queue}
   for update of t
