select seq from {schema}.leases where queue_id - {queue} = 0 and {seq in seqs} order by seq for update
