-- Groups with jobs that may run, first those behind one. From one to the next it goes by the key, whatever number of jobs a group has. The last part is
-- of jobs that a claim makes ready.
with recursive behind(group_key) as (
  select (select min(r.group_key) from penstock_ready r where r.queue_id = {queue} and r.group_key > {behind})
  union all
  select (select min(r.group_key) from penstock_ready r where r.queue_id = {queue} and r.group_key > g.group_key)
    from behind g
   where g.group_key is not null
), others(group_key) as (
  select (select min(r.group_key) from penstock_ready r where r.queue_id = {queue})
  union all
  select (select min(r.group_key) from penstock_ready r where r.queue_id = {queue} and r.group_key > g.group_key)
    from others g
   where g.group_key < {behind}
)
select f.group_key
  from (select * from (select g.group_key, 1 as part from behind g where {all} and g.group_key is not null limit {most})
        union all
        select * from (select g.group_key, 2 from others g where {all} and g.group_key <= {behind} limit {most})
        union all
        select * from (select g.value, 3 + (g.value <= {behind}) from json_each({groups}) g
                        where exists (select 1 from penstock_ready r where r.queue_id = {queue} and r.group_key = g.value) order by 2, 1 limit {most})
        union all
        select * from (select t.group_key, 5
                         from (select l.seq from penstock_leases l where l.queue_id = {queue} and l.until <= {clock}
                               union all
                               select d.seq from penstock_scheduled d where d.queue_id = {queue} and d.due <= {clock}) l
                        cross join {jobs} t on t.seq = l.seq
                        where {all} or t.group_key in (select value from json_each({groups}))
                        limit {most})) f
 where exists (select 1 from penstock_queues q where q.id = {queue} and not q.paused
                  and (q.max_running = 0 or q.max_running > (select count(*) from penstock_leases l where l.queue_id = q.id)))
 group by f.group_key
 order by min(f.part), f.group_key
 limit {most}
