-- Groups with jobs that may run now, from the one behind a given one on. A group at its limit is left before its jobs are read.
select g.group_key, {weight}, (select q.policies from {schema}.queues q where q.id = {queue}) > 0
  from (select distinct group_key from {jobs}) g{running_groups}
 where ({all} or {g.group_key in groups})
   and exists (select 1 from {schema}.queues q where q.id = {queue} and not q.paused
                  and (q.max_running = 0 or q.max_running > (select count(*) from {schema}.leases l where l.queue_id = {queue})))
   and {may_start}
   and (select 1 from {jobs} t force index (claims)
                where t.group_key = g.group_key and t.place <> 127 and t.ts <= utc_timestamp(6)
                  and not exists (select 1 from {schema}.leases l force index (primary) where l.queue_id = {queue} and l.seq = t.seq)
                  and not exists (select 1 from {schema}.tries a force index (primary) where a.queue_id = {queue} and a.seq = t.seq and a.due > utc_timestamp(6))
                  and not ({blocked}) limit 1) = 1
 order by g.group_key <= {behind}, g.group_key
 limit {most}
