-- The jobs that are leased, those for longest first. A lease's number has its place among all leases in its upper bits.
select q.name, coalesce(j.id, l.id), coalesce(j.lease, l.lease), l.worker, coalesce(j.attempt, l.attempt), extract(epoch from clock_timestamp() - coalesce(j.created_at, l.created_at))::float8,
       extract(epoch from clock_timestamp() - l.lease_until)::float8, greatest(pg_sequence_last_value('{schema}._lease_n') - (l.lease >> case l.lease & 1 when 0 then 20 else 28 end), 0)
  from {schema}._lease l join {schema}._queue q on q.id = l.queue
  left join lateral (select j.* from unnest(l.jobs) j where get_bit(l.done, (j.lease >> 1 & 255)::int) = 0) j on true
 order by l.lease >> case l.lease & 1 when 0 then 20 else 28 end, 3
 limit 1000
