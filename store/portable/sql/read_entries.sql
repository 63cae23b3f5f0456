select seq, state, parked_key, hold, attempts, since, failures
  from {schema}.entries
 where subscription_id = $1 and seq = any ($2)
