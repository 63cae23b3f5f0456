-- The messages of these entries.
select 0, t.ts, e.seq, coalesce(t.id, ''), e.`key`, t.topic, t.headers, t.payload, e.parked_key is not null, e.attempts, e.since, e.failures
  from {schema}.entries e
  join {table} t on {same_e}
 where e.subscription_id = {sub} and e.seq in ({seqs})
