-- The subscription's state: the newest row of its log. Of workers it has the rows that all of the epoch have settled, and
-- shows whether the lease of any of them still runs.
--   $1 subscription
select h.epoch, h.workers, h.holder, h.lease_until, h.since,
       case when h.workers then (
            select coalesce(sum(w.settled), 0)::bigint
              from (select distinct on (l.holder, l.since) l.settled from {schema}._adopt_log l
                     where l.subscription = h.subscription and l.epoch = h.epoch order by l.holder, l.since, l.n desc) w)
       else h.settled end, h.ordered_by, h.low,
       case when h.workers then exists (
            select from {schema}._adopt_log l
             where l.subscription = h.subscription and l.epoch = h.epoch and l.lease_until > clock_timestamp()
               and not exists (select from {schema}._adopt_log x where x.subscription = l.subscription and x.epoch = l.epoch
                                  and x.holder = l.holder and x.since = l.since and x.n > l.n))
       else h.lease_until > clock_timestamp() end, h.sink_down, h.sink_error
  from (select * from {schema}._adopt_log where subscription = $1 order by subscription desc, epoch desc, n desc limit 1) h
