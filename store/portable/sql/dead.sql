select e.bucket, e.ts, e.seq, coalesce(t.id, ''), e.key, t.topic, t.headers, t.payload, e.attempts, e.since, e.failures, e.died_at, e.hold is not null
  from {schema}.entries e
  join {table} t on t.bucket = e.bucket and t.ts = e.ts and t.seq = e.seq
 where e.subscription_id = $1 and e.state = 2
   and ($2::bigint[] is null or e.seq = any ($2))
   and ($3::text[] is null or t.id = any ($3) or coalesce(t.id, '') = '' and exists (select from unnest($4::bigint[], $12::timestamptz[]) d(seq, ts) where d.seq = e.seq and d.ts = e.ts))
   and ($5 = '' or e.key = $5)
   and ($6 = '' or t.topic = $6)
   and ($7 = '' or position($7 in e.failures -> -1 ->> 'error') > 0)
   and ($8::timestamptz is null or e.died_at < $8)
   and ($9::timestamptz is null or e.died_at > $9)
   and e.seq > $10
 order by e.seq
 limit $11
