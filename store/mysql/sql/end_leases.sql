delete {schema}.leases from {these_leases}
  straight_join {schema}.leases force index (primary) on leases.lease = d.seq and leases.queue_id = {queue}
