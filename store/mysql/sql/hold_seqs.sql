select seq from {schema}.leases force index (leases_job) where queue_id = {queue} and {seq in seqs} order by seq for update
