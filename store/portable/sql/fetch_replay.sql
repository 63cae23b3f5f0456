select p.bucket, p.ts, p.seq, coalesce(t.id, ''), coalesce(t.key, ''), t.topic, t.headers, t.payload,
       exists (select from {schema}.entries w where w.subscription_id - 0 = {sub} and w.parked_key = t.key)
       or exists (select from {schema}.entries w where w.subscription_id - 0 = {sub} and w.hold = t.key)
  from (select e.bucket, e.ts, e.seq
          from {schema}.entries e
         where e.subscription_id * 4 + e.state = {sub}::bigint * 4 + 3 and e.bucket = any ({reads}::smallint[]) and e.seq <> all ({in_flight}::bigint[])
           and exists (select from {lease})
         order by e.ts, e.seq
         limit {most}) p
  join {table} t on {same_p}
 order by p.ts, p.seq
