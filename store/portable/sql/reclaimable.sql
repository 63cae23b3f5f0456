-- What every subscription has settled and is not retained.
select e.bucket, e.ts, e.seq
  from {schema}.entries e
 where e.subscription_id * 4 + e.state = (select min(s.id) from {schema}.subscriptions s where s.outbox_id = {outbox}) * 4 and e.ts > {since}
   and not exists (select from {schema}.subscriptions s where s.outbox_id = {outbox}
                      and (select o.state from {schema}.entries o where o.subscription_id = s.id and o.seq = e.seq) is distinct from 0)
   and ({age}::bigint = 0 and {bytes}::bigint = 0
        or {age} > 0 and e.ts < clock_timestamp() - {age} * interval '1 microsecond'
        or {bytes} > 0 and e.ts < coalesce((select max(b.ts) from (select t.ts, sum(octet_length(t.payload) + 160) over (order by t.ts desc, t.seq desc) as total from {table} t) b where b.total > {bytes}), '1970-01-01'))
 order by e.ts, e.seq
 limit {most}
