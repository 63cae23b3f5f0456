-- How many workers there are, and of their sinks the one that has taken nothing for longest.
--   $1 subscription, $2 epoch
select count(*), min(w.sink_down), coalesce((array_agg(w.sink_error order by w.sink_down))[1], '')
  from (select distinct on (l.holder, l.since) l.lease_until, l.sink_down, l.sink_error from {schema}._adopt_log l
         where l.subscription = $1 and l.epoch = $2 order by l.holder, l.since, l.n desc) w
 where w.lease_until > clock_timestamp()
