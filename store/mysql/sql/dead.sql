select t.bucket, t.ts, t.seq, coalesce(t.id, ''), e.`key`, t.topic, t.headers, t.payload, e.attempts, e.since, e.failures, e.died_at, e.hold is not null
  from {schema}.entries e
  join {table} t on t.seq = e.seq
 where e.subscription_id = {sub} and e.state = 2 and e.seq > {after} {where}
 order by e.seq
 {limit}
