select seq, state, parked_key, hold, attempts, since, failures
  from (select $1::bigint as sub, unnest($2::bigint[]) as n) d
  join {schema}.entries e on e.subscription_id = any (array[d.sub]) and e.seq = d.n
