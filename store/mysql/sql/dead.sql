select 0, t.ts, e.seq, coalesce(t.id, ''), e.`key`, t.topic, t.headers, t.payload, e.attempts, e.since, e.failures, e.died_at, e.hold is not null
  from {schema}.entries e
  join {table} t on {same_e}
 where e.subscription_id = {sub} and e.state = 2
   and ({any_seq} or {e.seq in seqs})
   and ({any_id} or {t.id in ids} or coalesce(t.id, '') = '' and {e.seq in derived} and {e.ts in times})
   and ({key} = '' or e.`key` = {key})
   and ({topic} = '' or t.topic = {topic})
   and ({error} = '' or locate({error}, e.error) > 0)
   and ({died_before} is null or e.died_at < {died_before})
   and ({died_after} is null or e.died_at > {died_after})
   and e.seq > {after}
 order by e.seq
 limit {most}
