update {schema}.tries set due = clock_timestamp() where queue_id - {queue} = 0 and due > clock_timestamp() and {seq in seqs}
