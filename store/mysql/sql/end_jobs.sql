delete {jobs} from {these_leases}
  straight_join {schema}.leases l force index (leases_lease) on l.lease = d.seq and l.queue_id = {queue}
  straight_join {jobs} force index (primary) on {jobs}.seq = l.seq
