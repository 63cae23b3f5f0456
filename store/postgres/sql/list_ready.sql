-- The ready jobs of a group without payloads, in the order in which they run or the newest first, and the position of each. The last row says at
-- what position the search ended, and how many jobs it has looked at.
--   $1 queue, $2 group, $3 and $4 the position (priority, seq) after which the list begins, or null; $5 limit; $6 how many jobs are looked at
--   $7 the newest first; $8 kind, $9 key, $10 enqueued before, $11 enqueued after: each or null
with looked as materialized (
    select row_number() over () as n, x.* from (
        (select t.*, p, concat(p, '.', t.seq) as position
           from (select q.lifo from {schema}._queue q where q.name = $1::text) q
          cross join generate_series(coalesce($3::int, -16), 15) p
          cross join lateral (
            (select * from {queue} t where not q.lifo and t.group_key = $2::text and t.priority = p and t.seq > case when p = $3 then $4 else -9223372036854775808 end order by t.seq limit $6::int)
            union all
            (select * from {queue} t where q.lifo and t.group_key = $2 and t.priority = p and t.seq < case when p = $3 then $4 else 9223372036854775807 end order by t.seq desc limit $6)) t
          where not $7::boolean
          limit $6)
        union all
        (select t.*, p, concat(p, '.', t.seq)
           from generate_series(-16, 15) p
          cross join lateral (select * from {queue} t where t.group_key = $2 and t.priority = p and t.seq < coalesce($4::bigint, 9223372036854775807) order by t.seq desc limit $6) t
          where $7
          order by t.seq desc limit $6)) x)
(select coalesce(t.id, t.seq), t.key, t.group_key, t.p, t.attempt, t.created_at, t.headers, null::bytea, t.failures, 'ready', '', null::timestamptz, null::timestamptz, t.position, 0::bigint
   from looked t
  where ($8::text is null or t.headers ->> 'penstock-kind' = $8) and ($9::text is null or t.key = $9)
    and ($10::timestamptz is null or t.created_at < $10) and ($11::timestamptz is null or t.created_at > $11)
  order by t.n limit $5::int)
union all
(select 0, null, '', 0, 0, now(), null, null, null, 'looked', '', null, null, t.position, t.n from looked t order by t.n desc limit 1)
