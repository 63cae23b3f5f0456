delete from penstock_dead_jobs where queue_id = {queue} and {seq in seqs}
