select seq, state, parked_key, hold, attempts, since, failures from penstock_entries where subscription_id = {sub} and {seq in seqs}
