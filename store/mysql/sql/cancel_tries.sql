delete from {schema}.tries where queue_id = {queue} and {seq in seqs}
