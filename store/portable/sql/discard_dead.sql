update {schema}.entries set state = 0, hold = null, failures = null where subscription_id = {sub} and {seq in seqs}
