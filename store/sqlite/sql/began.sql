select seq from penstock_leases where queue_id = {queue} and {seq in seqs}
