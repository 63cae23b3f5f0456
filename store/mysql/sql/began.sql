select l.seq from {schema}.leases l force index (primary) where l.queue_id = {queue} and {l.seq in seqs}
