delete {schema}.tries from {these_leases}
  straight_join {schema}.leases l force index (leases_lease) on l.lease = d.seq and l.queue_id = {queue}
  straight_join {schema}.tries force index (primary) on tries.queue_id = {queue} and tries.seq = l.seq
