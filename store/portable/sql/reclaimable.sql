-- What every subscription has settled and is not retained.
select e.bucket, e.ts, e.seq
  from {schema}.entries e
 where e.subscription_id = (select min(s.id) from {schema}.subscriptions s where s.outbox_id = $1) and e.state = 0
   and not exists (select from {schema}.subscriptions s where s.outbox_id = $1
                      and not exists (select from {schema}.entries o where o.subscription_id = s.id and o.seq = e.seq and o.state = 0))
   and ($2::bigint = 0 and $3::bigint = 0
        or $2 > 0 and e.ts < clock_timestamp() - $2 * interval '1 microsecond'
        or $3 > 0 and e.ts < coalesce((select max(b.ts) from (select t.ts, sum(octet_length(t.payload) + 160) over (order by t.ts desc, t.seq desc) as total from {table} t) b where b.total > $3), '1970-01-01'))
 order by e.ts, e.seq
 limit $4
