-- Jobs that must be tried again. Each lookup in leases and tries is one of a row: read whole, they would
-- have what was deleted walked over.
select t.priority, t.ts, t.seq, {blocked}, coalesce(t.`key`, ''), a.attempts
  from {schema}.tries a force index (tries_due)
  straight_join {jobs} t on t.seq = a.seq
 where a.queue_id = {queue} and a.group_key = {group} and a.due > {tried} and a.due <= utc_timestamp(6)
   and (select l.lease from {schema}.leases l force index (primary) where l.queue_id = {queue} and l.seq = a.seq) is null
 order by a.due
 limit {window}
