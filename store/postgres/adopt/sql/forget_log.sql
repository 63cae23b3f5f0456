-- Deletes what is old in the log of a subscription and not read any more: of workers the
-- latest of each stays, since status adds them up.
--   $1 subscription
delete from {schema}._adopt_log l
 where l.subscription = $1 and l.at < clock_timestamp() - interval '2 minutes'
   and (l.epoch, l.n) < (select x.epoch, x.n from {schema}._adopt_log x where x.subscription = $1 order by x.subscription desc, x.epoch desc, x.n desc limit 1)
   and (not l.workers or exists (select from {schema}._adopt_log x where x.subscription = $1 and x.epoch >= l.epoch
                                    and x.holder = l.holder and x.since = l.since and (x.epoch, x.n) > (l.epoch, l.n)))
