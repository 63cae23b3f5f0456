select seq, state, parked_key, hold, attempts, since, failures
  from (select {sub}::bigint as sub, unnest({seqs}::bigint[]) as n) d
  join {schema}.entries e on e.subscription_id = any (array[d.sub]) and e.seq = d.n
