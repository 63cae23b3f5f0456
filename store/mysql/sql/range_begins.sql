-- The first few of a range that were never claimed.
(select {range}, t.seq
   from {jobs} t force index (claims)
  where t.group_key = {group} and {within} and t.ts <= utc_timestamp(6)
    and (select l.lease from {schema}.leases l force index (primary) where l.queue_id = {queue} and l.seq = t.seq) is null
    and (select a.seq from {schema}.tries a force index (primary) where a.queue_id = {queue} and a.seq = t.seq) is null
  order by t.ts, t.seq
  limit {window})
