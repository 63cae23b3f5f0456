update {schema}.tries set due = utc_timestamp(6) where queue_id = {queue} and due > utc_timestamp(6) and {seq in seqs}
