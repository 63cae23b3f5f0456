select d.seq, d.group_key, d.priority, d.created_at, coalesce(d.key, ''), d.headers, d.payload, d.attempts, d.failures, d.died_at
  from {schema}.dead_jobs d
 where d.queue_id = $1
   and ($2::bigint[] is null or d.seq = any ($2))
   and ($3 = '' or d.key = $3)
   and ($4 = '' or d.group_key = $4)
   and ($5 = '' or position($5 in d.failures -> -1 ->> 'error') > 0)
   and ($6::timestamptz is null or d.died_at < $6)
   and ($7::timestamptz is null or d.died_at > $7)
   and d.seq > $8
 order by d.seq
 limit $9
