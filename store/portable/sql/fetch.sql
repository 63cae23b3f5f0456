-- What has no entry, is behind the low-water mark and not in flight: of each bucket the
-- first few, of these the first.
with page as (
  select c.bucket, c.ts, c.seq
    from unnest($8::smallint[]) b(bucket)
    cross join lateral (
      select t.bucket, t.ts, t.seq
        from {table} t
       where t.bucket = b.bucket and t.ts > $3
         and (select e.seq from {schema}.entries e where e.subscription_id = $1 and e.seq = t.seq) is null -- no join, which might read all
         and (t.seq <> all ($4::bigint[]) or t.ts <> all ($9::timestamptz[])) -- a number may come again where the last that was committed was lost
       order by t.ts, t.seq
       limit $5) c
   where $1 = 0 or exists (select from {lease})
   order by c.ts, c.seq
   limit $6
)
select m.bucket, m.ts, m.seq, m.id, m.key, m.topic, m.headers, m.payload, m.behind
  from (select p.bucket, p.ts, p.seq, coalesce(t.id, '') as id, coalesce(t.key, '') as key, t.topic, t.headers, t.payload,
               exists (select from {schema}.entries w where w.subscription_id = $1 and w.line = t.key)
               or exists (select from {schema}.entries w where w.subscription_id = $1 and w.hold = t.key) as behind,
               sum(octet_length(t.payload) + 160) over (order by p.ts, p.seq) - octet_length(t.payload) - 160 as before
          from page p
          join {table} t on t.bucket = p.bucket and t.ts = p.ts and t.seq = p.seq) m
 where m.before <= $7
 order by m.ts, m.seq
