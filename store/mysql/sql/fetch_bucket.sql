(select t.seq, t.ts
   from {table} t force index (bucket)
  where t.bucket = {bucket} and t.ts > {low}
    and not exists (select 1 from {schema}.entries e where e.subscription_id = {sub} and e.seq = t.seq)
    and t.seq not in ({in_flight})
  order by t.ts, t.seq
  limit {per})
