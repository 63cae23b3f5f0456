-- The jobs of a queue that wait behind another of their key or for barriers, without payloads, the oldest or the newest first, and the position of each. The last row
-- is as in list_ready.sql.
--   $1 queue, $2 group or null; $3 nothing and $4 the id after which the list begins, or null; $5 limit; $6 how many jobs are looked at
--   $7 the newest first; $8 kind, $9 key, $10 enqueued before, $11 enqueued after: each or null
with of as materialized (select q.id from {schema}._queue q where q.name = $1::text),
looked as materialized (
    select row_number() over () as n, x.*, concat('0.', x.id) as position from (
        (select s.* from unnest('{-infinity,infinity}'::timestamptz[]) d(due) cross join lateral (
            select s.* from {schema}._scheduled s
             where not $7::boolean and s.queue = (select o.id from of o) and s.due = d.due and s.id > case when $3::bigint is null then -9223372036854775808 else $4::bigint end
             order by s.id limit $6::int) s
          order by s.id limit $6)
        union all
        (select s.* from unnest('{-infinity,infinity}'::timestamptz[]) d(due) cross join lateral (
            select s.* from {schema}._scheduled s
             where $7 and s.queue = (select o.id from of o) and s.due = d.due and s.id < coalesce($4, 9223372036854775807)
             order by s.id desc limit $6) s
          order by s.id desc limit $6)) x)
(select t.id, t.key, t.group_key, t.priority, t.attempt, t.created_at, t.headers, null::bytea, t.failures, case when t.due = 'infinity' then 'behind its key' else 'waiting for barriers' end, '', null::timestamptz, null::timestamptz, t.position, 0::bigint
   from looked t
  where ($2::text is null or t.group_key = $2) and ($8::text is null or t.headers ->> 'penstock-kind' = $8) and ($9::text is null or t.key = $9)
    and ($10::timestamptz is null or t.created_at < $10) and ($11::timestamptz is null or t.created_at > $11)
  order by t.n limit $5::int)
union all
(select 0, null, '', 0, 0, now(), null, null, null, 'looked', '', null, null, t.position, t.n from looked t order by t.n desc limit 1)
