select lease from {schema}.leases force index (primary) where queue_id = {queue} and {lease in leases} order by lease for update
