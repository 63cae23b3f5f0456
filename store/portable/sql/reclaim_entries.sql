delete from {schema}.entries e
 using (select s.id as sub, unnest({seqs}::bigint[]) as seq from {schema}.subscriptions s where s.outbox_id = {outbox}) d
 where e.subscription_id = any (array[d.sub]) and e.seq = d.seq
