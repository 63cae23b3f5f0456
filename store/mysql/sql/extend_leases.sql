update {schema}.leases force index (primary) set until = utc_timestamp(6) + interval {micros} microsecond where queue_id = {queue} and {lease in leases}
