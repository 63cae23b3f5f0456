-- As hold_leases. Under limits only leases that have not ended, because a claim may not count the others.
select lease
  from {schema}.leases
 where queue_id - {queue} = 0 and {lease in leases}
   and (until > clock_timestamp() or not exists (select from {schema}.queues q where q.id = {queue} and (q.max_running > 0 or q.policies > 0)))
 order by lease
   for update
