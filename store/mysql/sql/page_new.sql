-- The next jobs that were never claimed, in some ranges of the index, or of some jobs. Each lookup in leases
-- and tries is one of a row: read whole, they would have what was deleted walked over.
select t.priority, t.ts, t.seq, {blocked}, coalesce(t.`key`, '')
  from {from}
 where t.group_key = {group} and ({ranges}) and t.ts <= utc_timestamp(6)
   and (select l.lease from {schema}.leases l force index (primary) where l.queue_id = {queue} and l.seq = t.seq) is null
   and (select a.seq from {schema}.tries a force index (primary) where a.queue_id = {queue} and a.seq = t.seq) is null
 order by t.place {dir}, t.ts {dir}, t.seq {dir}
 limit {window}
