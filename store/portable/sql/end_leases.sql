delete from {schema}.leases where queue_id - {queue} = 0 and {lease in leases}
