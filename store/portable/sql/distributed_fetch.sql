-- The contents of a page's messages, from their shards alone.
select t.bucket, t.ts, t.seq, coalesce(t.id, ''), coalesce(t.key, ''), t.topic, t.headers, t.payload, false, t.{tenant}::text
  from {table} t
 where {there}
 order by t.ts, t.seq
