-- Groups with jobs that may run now, from the one behind a given one on.
with recursive g(group_key) as (
  (select t.group_key from {jobs} t order by t.group_key limit 1)
  union all
  select (select t.group_key from {jobs} t where t.group_key > g.group_key order by t.group_key limit 1) from g where g.group_key is not null
)
select g.group_key, {weight}, (select q.policies from {schema}.queues q where q.id = {queue}) > 0
  from g{running_groups}
 where g.group_key is not null and ({all} or {g.group_key in groups})
   and exists (select from {schema}.queues q where q.id = {queue} and not q.paused
                  and (q.max_running = 0 or q.max_running > (select count(*) from {schema}.leases l where l.queue_id = {queue})))
   and exists (select from {jobs} t
                where t.group_key = g.group_key and t.ts <= (select clock_timestamp())
                  and not exists (select from {schema}.leases l where l.seq = t.seq)
                  and not exists (select from {schema}.tries a where a.seq = t.seq and a.due > (select clock_timestamp()))
                  and not ({blocked}))
   and {may_start}
 order by g.group_key <= {behind}{collate}, g.group_key
 limit {most}
