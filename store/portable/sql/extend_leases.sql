update {schema}.leases set until = clock_timestamp() + {micros} * interval '1 microsecond'
 where queue_id - {queue} = 0 and {lease in leases}
   and (until > clock_timestamp() or not exists (select from {schema}.queues q where q.id = {queue} and (q.max_running > 0 or q.policies > 0)))
