-- The running jobs of a queue without payloads, those whose leases end first at first or the other way round, and the position of each. The last row
-- is as in list_ready.sql.
--   $1 queue, $2 group or null; $3 and $4 the position (microseconds, lease) after which the list begins, or null; $5 limit; $6 how many jobs
--   are looked at; $7 the last first; $8 kind, $9 key, $10 enqueued before, $11 enqueued after: each or null
with of as materialized (select q.id, timestamptz 'epoch' + $3::bigint * interval '1 microsecond' as since from {schema}._queue q where q.name = $1::text),
looked as materialized (
    select row_number() over () as n, x.*, concat(case when isfinite(x.lease_until) then (extract(epoch from x.lease_until) * 1000000)::bigint else 0 end, '.', x.lease) as position from (
        (select coalesce(j.id, l.id) as id, l.key, l.group_key, l.priority, coalesce(j.attempt, l.attempt) as attempt, coalesce(j.created_at, l.created_at) as created_at,
                coalesce(j.headers, l.headers) as headers, coalesce(j.failures, l.failures) as failures, l.worker, l.lease_until, l.claimed_at, coalesce(j.lease, l.lease) as lease
           from {schema}._lease l left join lateral (select j.* from unnest(l.jobs) j where get_bit(l.done, (j.lease >> 1 & 255)::int) = 0) j on true
          where not $7::boolean and l.queue = (select o.id from of o) and (l.jobs is null or j.lease is not null)
            and l.lease_until >= coalesce((select o.since from of o), '-infinity')
            and ($3 is null or l.lease_until > (select o.since from of o) or coalesce(j.lease, l.lease) > $4::bigint)
          order by l.lease_until, coalesce(j.lease, l.lease) limit $6::int)
        union all
        (select coalesce(j.id, l.id), l.key, l.group_key, l.priority, coalesce(j.attempt, l.attempt), coalesce(j.created_at, l.created_at),
                coalesce(j.headers, l.headers), coalesce(j.failures, l.failures), l.worker, l.lease_until, l.claimed_at, coalesce(j.lease, l.lease)
           from {schema}._lease l left join lateral (select j.* from unnest(l.jobs) j where get_bit(l.done, (j.lease >> 1 & 255)::int) = 0) j on true
          where $7 and l.queue = (select o.id from of o) and (l.jobs is null or j.lease is not null)
            and l.lease_until <= coalesce((select o.since from of o), 'infinity')
            and ($3 is null or l.lease_until < (select o.since from of o) or coalesce(j.lease, l.lease) < $4)
          order by l.lease_until desc, coalesce(j.lease, l.lease) desc limit $6)) x)
(select t.id, t.key, t.group_key, t.priority, t.attempt, t.created_at, t.headers, null::bytea, t.failures, 'running', t.worker, t.lease_until, t.claimed_at, t.position, 0::bigint
   from looked t
  where ($2::text is null or t.group_key = $2) and ($8::text is null or t.headers ->> 'penstock-kind' = $8) and ($9::text is null or t.key = $9)
    and ($10::timestamptz is null or t.created_at < $10) and ($11::timestamptz is null or t.created_at > $11)
  order by t.n limit $5::int)
union all
(select 0, null, '', 0, 0, now(), null, null, null, 'looked', '', null, null, t.position, t.n from looked t order by t.n desc limit 1)
