-- The jobs that are leased, of the queue $1 or, if that is empty, of all. There are up to $2 of each, those for longest first, so that a
-- busy queue hides no other's. A lease's number has its place among all leases in its upper bits. Of a queue's leases the first 10,000 to end are looked at.
select q.name, l.id, l.lease, l.worker, l.attempt, extract(epoch from clock_timestamp() - l.created_at)::float8,
       extract(epoch from clock_timestamp() - l.lease_until)::float8, greatest(pg_sequence_last_value('{schema}._lease_n') - l.place, 0), l.report
  from {schema}._queue q cross join lateral (
    select coalesce(j.id, l.id) as id, coalesce(j.lease, l.lease) as lease, l.worker, coalesce(j.attempt, l.attempt) as attempt, coalesce(j.created_at, l.created_at) as created_at, l.lease_until, l.place,
           coalesce(l.report, (coalesce(j.headers, l.headers) ->> 'penstock-report')::jsonb) as report
      from (select l.*, l.lease >> case l.lease & 1 when 0 then 20 else 28 end as place from {schema}._lease l where l.queue = q.id order by l.lease_until limit 10000) l
      left join lateral (select j.* from unnest(l.jobs) j where get_bit(l.done, (j.lease >> 1 & 255)::int) = 0) j on true
     order by l.place, lease limit $2::int) l
 where $1::text in ('', q.name)
 order by l.place, l.lease
 limit 10000
