-- As hold_leases. Under limits only leases that have not ended, because a claim may not count the others.
select lease from {schema}.leases force index (leases_lease)
 where queue_id = {queue} and {lease in leases}
   and (until > utc_timestamp(6) or not exists (select 1 from {schema}.queues q where q.id = {queue} and (q.max_running > 0 or q.policies > 0)))
 order by lease for update
