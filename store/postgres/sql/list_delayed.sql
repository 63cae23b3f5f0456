-- The delayed jobs of a queue without payloads, those due first at first or the newest first, and the position of each. The last row is as in
-- list_ready.sql.
--   $1 queue, $2 group or null; $3 and $4 the position (microseconds, id) after which the list begins, or null; $5 limit; $6 how many jobs are
--   looked at; $7 the newest first; $8 kind, $9 key, $10 enqueued before, $11 enqueued after: each or null
with of as materialized (select q.id, timestamptz 'epoch' + $3::bigint * interval '1 microsecond' as since from {schema}._queue q where q.name = $1::text),
looked as materialized (
    select row_number() over () as n, x.*, concat(case when isfinite(x.due) then (extract(epoch from x.due) * 1000000)::bigint else 0 end, '.', x.id) as position from (
        (select s.* from {schema}._scheduled s
          where not $7::boolean and s.queue = (select o.id from of o) and s.due >= coalesce((select o.since from of o), '-infinity') and s.due < 'infinity' and s.due > '-infinity'
            and ($4::bigint is null or s.due > (select o.since from of o) or s.id > $4)
          order by s.due, s.id limit $6::int)
        union all
        (select s.* from {schema}._scheduled s
          where $7 and s.queue = (select o.id from of o) and s.id < coalesce($4, 9223372036854775807)
          order by s.id desc limit $6)) x)
(select t.id, t.key, t.group_key, t.priority, t.attempt, t.created_at, t.headers, null::bytea, t.failures, 'delayed', '', t.due, null::timestamptz, t.position, 0::bigint
   from looked t
  where isfinite(t.due) and ($2::text is null or t.group_key = $2) and ($8::text is null or t.headers ->> 'penstock-kind' = $8) and ($9::text is null or t.key = $9)
    and ($10::timestamptz is null or t.created_at < $10) and ($11::timestamptz is null or t.created_at > $11)
  order by t.n limit $5::int)
union all
(select 0, null, '', 0, 0, now(), null, null, null, 'looked', '', null, null, t.position, t.n from looked t order by t.n desc limit 1)
