delete from {schema}.leases where queue_id = {queue} and {seq in seqs}
