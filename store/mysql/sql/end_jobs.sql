-- Ends jobs with their tries and leases.
delete {jobs}, {schema}.tries, {schema}.leases from {these_leases}
  straight_join {schema}.leases force index (leases_lease) on leases.lease = d.seq and leases.queue_id = {queue}
  left join {jobs} force index (primary) on {jobs}.seq = leases.seq
  left join {schema}.tries force index (primary) on tries.queue_id = {queue} and tries.seq = leases.seq
