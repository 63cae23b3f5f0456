-- The leases come first, locked: another call that ends one waits, and finds none. Each finds its job by the whole key.
with l as materialized (
  select group_key, priority, ts, seq from {schema}.leases where queue_id - {queue} = 0 and {lease in leases} order by lease for update
)
delete from {jobs} t
 using l
 where t.group_key = any (array[l.group_key]) and t.priority = l.priority and t.ts = l.ts and t.seq = l.seq
