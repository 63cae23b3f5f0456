delete {schema}.leases from {these}
  straight_join {schema}.leases force index (primary) on leases.lease = d.seq and leases.queue_id = {queue}
