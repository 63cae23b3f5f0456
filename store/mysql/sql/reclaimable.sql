-- What every subscription has settled and is not retained.
select 0, e.ts, e.seq
  from {schema}.entries e
 where e.subscription_id = (select min(s.id) from {schema}.subscriptions s where s.outbox_id = {outbox}) and e.state = 0 and e.ts > {since}
   and not exists (select 1 from {schema}.subscriptions s where s.outbox_id = {outbox}
                      and not exists (select 1 from {schema}.entries o where o.subscription_id = s.id and o.seq = e.seq and o.state = 0))
   and ({age} = 0 and {bytes} = 0
        or {age} > 0 and e.ts < utc_timestamp(6) - interval {age} microsecond
        or {bytes} > 0 and e.ts < coalesce((select max(b.ts) from (select t.ts, sum(octet_length(t.payload) + 160) over (order by t.ts desc, t.seq desc) as total from {table} t) b where b.total > {bytes}), '1970-01-01'))
 order by e.ts, e.seq
 limit {most}
