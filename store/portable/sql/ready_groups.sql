-- Groups with jobs that may run now, from the one behind $3 on.
with recursive g(group_key) as (
  (select t.group_key from {table} t order by t.group_key limit 1)
  union all
  select (select t.group_key from {table} t where t.group_key > g.group_key order by t.group_key limit 1) from g where g.group_key is not null
)
select g.group_key
  from g
 where g.group_key is not null and ($2::text[] is null or g.group_key = any ($2))
   and exists (select from {schema}.queues q where q.id = $1 and not q.paused
                  and (q.max_running = 0 or q.max_running > (select count(*) from {schema}.leases l where l.queue_id = $1)))
   and exists (select from {table} t
                where t.group_key = g.group_key and t.ts <= (select clock_timestamp())
                  and not exists (select from {schema}.leases l where l.seq = t.seq)
                  and not exists (select from {schema}.tries a where a.seq = t.seq and a.due > (select clock_timestamp()))
                  and not ({blocked}))
 order by g.group_key <= $3{collate}, g.group_key
 limit $4
