delete {schema}.leases from {these_leases}
  straight_join {schema}.leases force index (leases_lease) on leases.lease = d.seq and leases.queue_id = {queue}
