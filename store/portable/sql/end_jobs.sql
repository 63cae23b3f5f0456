-- Ends jobs with their leases: one statement, so that it is one flush on YugabyteDB. The leases are locked first: another call that ends one waits,
-- and finds none. Each finds its job by the whole key. The leases are deleted last. A claim may have locked a job that it saw without a lease:
-- it would wait for the deletion of that lease, and this statement for the job.
with l as materialized (
  select lease, group_key, priority, ts, seq
    from {schema}.leases
   where queue_id - {queue} = 0 and {lease in leases}
   order by lease
     for update
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
delete from {schema}.leases where queue_id - {queue} = 0 and {lease in leases} and (select count(*) from gone) >= 0
returning lease
