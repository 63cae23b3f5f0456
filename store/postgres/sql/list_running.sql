-- The running jobs of a queue, those for longest first, without payloads, and the position of each. A lease's number has its place among
-- all leases in its upper bits.
--   $1 queue, $2 and $3 the position (place, lease) after which the list begins, or null; $4 limit
select id, key, group_key, priority, attempt, created_at, headers, null::bytea, failures, 'running', worker, lease_until, concat(place, '.', lease)
  from (select coalesce(j.id, l.id) as id, l.key, l.group_key, l.priority, coalesce(j.attempt, l.attempt) as attempt, coalesce(j.created_at, l.created_at) as created_at,
               coalesce(j.headers, l.headers) as headers, coalesce(j.failures, l.failures) as failures, l.worker, l.lease_until, coalesce(j.lease, l.lease) as lease, l.place
          from (select l.*, l.lease >> case l.lease & 1 when 0 then 20 else 28 end as place from {schema}._lease l
                 where l.queue = (select q.id from {schema}._queue q where q.name = $1::text)) l
          left join lateral (select j.* from unnest(l.jobs) j where get_bit(l.done, (j.lease >> 1 & 255)::int) = 0) j on true
         where (l.jobs is null or j.lease is not null) and l.place >= coalesce($2::bigint, 0)) l
 where $2 is null or (l.place, l.lease) > ($2, $3::bigint)
 order by l.place, l.lease
 limit $4::int
