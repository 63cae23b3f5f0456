delete d, t from {schema}.dead_jobs d join {jobs} t on t.seq = d.seq where d.queue_id = {queue} and {d.seq in seqs}
