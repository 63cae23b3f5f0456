delete from {schema}.entries e
 using (select {sub}::bigint as sub, unnest({seqs}::bigint[]) as seq) d
 where e.subscription_id = any (array[d.sub]) and e.seq = d.seq
