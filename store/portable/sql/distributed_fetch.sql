-- As fetch, in two steps: which messages come first, of the first of each shard, then their contents. Local tables are read before
-- and after: no subquery of a shard can refer to them.
with page as materialized (
  select t.bucket, t.ts, t.seq
    from {table} t
   where t.bucket = any ({reads}::smallint[]) and {beyond} and {landed}
     and t.seq not in (select e.seq from {schema}.entries e where e.subscription_id = {sub})
     and ({sub} = 0 or exists (select 1 from {lease}))
   order by t.ts, t.seq
   limit {most}
), found as materialized (
  select t.bucket, t.ts, t.seq, coalesce(t.id, '') as id, coalesce(t.key, '') as key, t.topic, t.headers, t.payload, t.{tenant}::text as tenant
    from page p
    join {table} t on {same_p}
)
select m.bucket, m.ts, m.seq, m.id, m.key, m.topic, m.headers, m.payload, m.behind, m.tenant
  from (select f.*,
               exists (select from {schema}.entries w where w.subscription_id - 0 = {sub} and w.parked_key = f.key)
               or exists (select from {schema}.entries w where w.subscription_id - 0 = {sub} and w.hold = f.key) as behind,
               sum(octet_length(f.payload) + 160) over (order by f.ts, f.seq) - octet_length(f.payload) - 160 as before
          from found f) m
 where m.before <= {bytes}
 order by m.ts, m.seq
