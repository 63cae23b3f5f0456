-- Ends jobs with their leases: one statement, so that it is one flush on YugabyteDB. The leases come first: another call that ends one waits, and finds
-- none. Each finds its job by the whole key.
with l as (
  delete from {schema}.leases where queue_id - {queue} = 0 and {lease in leases}
  returning lease, group_key, priority, ts, seq
), tried as (
  delete from {schema}.tries a
   using l
   where a.seq = any (array[l.seq])
  returning a.seq
), gone as (
  delete from {jobs} t
   using l
   where t.group_key = any (array[l.group_key]) and t.priority = l.priority and t.ts = l.ts and t.seq = l.seq
  returning t.seq
)
select lease from l
