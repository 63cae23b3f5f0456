-- A number may come again where the last that was committed was lost: what is in flight is known by its time, too.
(select t.seq, t.ts
   from {table} t force index (bucket)
  where t.bucket = {bucket} and t.ts > {low}
    and (select e.seq from {schema}.entries e force index (primary) where e.subscription_id = {sub} and e.seq = t.seq) is null
    and (t.seq not in ({in_flight}) or t.ts not in ({times}))
  order by t.ts, t.seq
  limit {per})
