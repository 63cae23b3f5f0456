-- Samples of the queues that the role may look at, of the last $1 seconds.
select q.name, null, s.at, s.arrived, s.ended, s.failed, s.dead, s.oldest, s.done
  from {schema}._queue q cross join lateral (
    select x.* from {schema}._sample x where x.series = q.id and x.at > clock_timestamp() - make_interval(secs => $1) order by x.at) s
 order by q.name collate "C", s.at
