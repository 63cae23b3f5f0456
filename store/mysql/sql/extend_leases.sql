update {schema}.leases force index (leases_lease) set until = utc_timestamp(6) + interval {micros} microsecond, second = to_seconds(utc_timestamp(6) + interval {micros} microsecond)
 where queue_id = {queue} and {lease in leases}
   and (until > utc_timestamp(6) or not exists (select 1 from {schema}.queues q where q.id = {queue} and (q.max_running > 0 or q.policies > 0)))
