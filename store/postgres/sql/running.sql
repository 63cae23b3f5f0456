-- The jobs that are leased, those for longest first. A lease's number has its place among all leases in its upper bits.
select q.name, l.id, l.lease, l.worker, l.attempt, extract(epoch from clock_timestamp() - l.created_at)::float8,
       extract(epoch from clock_timestamp() - l.lease_until)::float8, greatest(pg_sequence_last_value('{schema}._lease_n') - (l.lease >> 20), 0)
  from {schema}._lease l join {schema}._queue q on q.id = l.queue
 order by l.lease
 limit 1000
