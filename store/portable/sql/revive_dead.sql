update {schema}.entries set state = 1, head = true, due = clock_timestamp(), died_at = null where subscription_id = {sub} and {seq in seqs}
