select d.seq, t.group_key, d.priority, t.created_at, d.`key`, t.headers, t.payload, d.attempts, d.failures, d.died_at
  from {schema}.dead_jobs d
  straight_join {jobs} t on t.seq = d.seq
 where d.queue_id = {queue} and d.seq > {after} {where}
 order by d.seq
 {limit}
