select lease from {schema}.leases force index (leases_lease) where queue_id = {queue} and {lease in leases} order by lease for update
