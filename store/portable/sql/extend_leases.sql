update {schema}.leases set until = clock_timestamp() + {micros} * interval '1 microsecond' where queue_id - {queue} = 0 and {lease in leases}
