-- The jobs that are leased, of the queue $1 or, if that is empty, of all. There are up to $2 of each, those for longest first, so that a
-- busy queue hides no other's. Of a queue's leases the first 10,000 to end are looked at.
select q.name, l.id, l.lease, l.worker, l.attempt, extract(epoch from clock_timestamp() - l.created_at)::float8,
       extract(epoch from clock_timestamp() - l.lease_until)::float8, coalesce(greatest(extract(epoch from clock_timestamp() - l.claimed_at), 0.000001), 0)::float8, l.report
  from {schema}._queue q cross join lateral (
    select coalesce(j.id, l.id) as id, coalesce(j.lease, l.lease) as lease, l.worker, coalesce(j.attempt, l.attempt) as attempt, coalesce(j.created_at, l.created_at) as created_at, l.lease_until, l.claimed_at,
           coalesce(l.report, (coalesce(j.headers, l.headers) ->> 'penstock-report')::jsonb) as report
      from (select l.* from {schema}._lease l where l.queue = q.id order by l.lease_until limit 10000) l
      left join lateral (select j.* from unnest(l.jobs) j where get_bit(l.done, (j.lease >> 1 & 255)::int) = 0) j on true
     order by l.claimed_at nulls first, lease limit $2::int) l
 where $1::text in ('', q.name)
 order by l.claimed_at nulls first, l.lease
 limit 10000
