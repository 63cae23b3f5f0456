select seq, state, parked_key, hold, attempts, since, failures
  from {schema}.entries
 where subscription_id = {sub} and seq in ({seqs})
