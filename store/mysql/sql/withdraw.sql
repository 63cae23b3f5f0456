-- Ends leases of a claim whose jobs another claim has had, and given back, since this one looked. The jobs are locked.
delete {schema}.leases from {these_leases}
  straight_join {schema}.leases force index (leases_lease) on leases.lease = d.seq and leases.queue_id = {queue}
  left join {schema}.tries a force index (primary) on a.queue_id = {queue} and a.seq = leases.seq
 where coalesce(a.attempts + 1 <> leases.attempt or a.due > utc_timestamp(6), leases.attempt <> 1)
