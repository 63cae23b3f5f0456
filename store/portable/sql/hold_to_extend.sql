-- As hold_leases. Under limits only leases that have not ended: claims do not count the others any more.
select lease
  from {schema}.leases
 where queue_id - {queue} = 0 and {lease in leases}
   and (until > clock_timestamp() or not exists (select from {schema}.queues q where q.id = {queue} and (q.max_running > 0 or q.policies > 0)))
 order by lease
   for update
