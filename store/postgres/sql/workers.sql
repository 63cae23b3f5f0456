-- The last heartbeat of each worker, of the last ten minutes.
--   $1 queue, or empty: all; $2 limit
select q.name, w.worker, w.report, w.claimed_at, w.lease_until
  from {schema}._queue q cross join lateral (
    select distinct on (l.worker) l.worker, l.report, l.claimed_at, l.lease_until
      from (select l.worker, l.report, l.claimed_at, l.lease_until from {schema}._lease l
             where l.queue = -q.id and l.lease_until > clock_timestamp() - interval '510 s' order by l.lease_until desc limit 5000) l
     order by l.worker, l.lease_until desc) w
 where $1::text in ('', q.name)
 order by q.name collate "C", w.worker collate "C"
 limit $2::int
