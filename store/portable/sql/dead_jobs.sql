select d.seq, d.group_key, d.priority, d.created_at, coalesce(d.key, ''), d.headers, d.payload, d.attempts, d.failures, d.died_at, ''
  from {schema}.dead_jobs d
 where d.queue_id = {queue}
   and ({all} or {d.seq in ids})
   and ({kind} = '' or d.headers ->> 'penstock-kind' = {kind})
   and ({key} = '' or d.key = {key})
   and ({group} = '' or d.group_key = {group})
   and ({error} = '' or position({error} in d.failures -> -1 ->> 'error') > 0)
   and ({died_before}::timestamptz is null or d.died_at < {died_before})
   and ({died_after}::timestamptz is null or d.died_at > {died_after})
   and d.seq > {from}
 order by d.seq
 limit {most}
 {lock}
