select d.seq, t.group_key, d.priority, t.created_at, d.`key`, t.headers, t.payload, d.attempts, d.failures, d.died_at, ''
  from {schema}.dead_jobs d
  straight_join {jobs} t on t.seq = d.seq
 where d.queue_id = {queue}
   and ({all} or {d.seq in ids})
   and ({kind} = '' or json_unquote(json_extract(convert(t.headers using utf8mb4), '$."penstock-kind"')) = {kind})
   and ({key} = '' or d.`key` = {key})
   and ({group} = '' or t.group_key = {group})
   and ({error} = '' or locate({error}, d.error) > 0)
   and ({died_before} is null or d.died_at < {died_before})
   and ({died_after} is null or d.died_at > {died_after})
   and d.seq > {from}
 order by d.seq
 limit {most}
 {lock}
