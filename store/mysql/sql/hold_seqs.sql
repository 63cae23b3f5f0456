select seq from {schema}.leases force index (primary) where queue_id = {queue} and {seq in seqs} order by seq for update
