delete from {schema}.tries where queue_id - {queue} = 0 and {seq in seqs}
