-- Messages that have no entry, are behind the low-water mark and not in flight: of each bucket the
-- first few, of these the first.
with page as (
  select c.bucket, c.ts, c.seq{more_c}
    from unnest({reads}::smallint[]) b(bucket)
    cross join lateral (
      select t.bucket, t.ts, t.seq{more_t}
        from {table} t
       where t.bucket = b.bucket and {beyond}
         and (select e.seq from {schema}.entries e where e.subscription_id = {sub} and {entry}) is null -- no join, which might read all
         and {landed} -- a number may come again where the last that was committed was lost
       order by {order_t}
       limit {per}) c
   where {sub} = 0 or exists (select from {lease})
   order by {order_c}
   limit {most}
)
select m.bucket, m.ts, m.seq, m.id, m.key, m.topic, m.headers, m.payload, m.behind
  from (select p.bucket, p.ts, p.seq, coalesce(t.id, '') as id, coalesce(t.key, '') as key, t.topic, t.headers, t.payload,
               exists (select from {schema}.entries w where w.subscription_id - 0 = {sub} and w.parked_key = t.key)
               or exists (select from {schema}.entries w where w.subscription_id - 0 = {sub} and w.hold = t.key) as behind,
               sum(octet_length(t.payload) + 160) over (order by {order_p}) - octet_length(t.payload) - 160 as before{more_p}
          from page p
          join {table} t on {same_p}) m
 where m.before <= {bytes}
 order by {order_m}
