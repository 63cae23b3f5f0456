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
), running(group_key, n) as (
  select j.group_key, count(*) from penstock_leases l cross join {jobs} j on j.seq = l.seq where l.queue_id = {queue} and l.until > {clock} group by j.group_key
)
select g.group_key, {weight}, (select q.policies from penstock_queues q where q.id = {queue}) > 0
  from (select f.group_key, min(f.part) as part
          from (select * from (select g.group_key, 1 as part from behind g where {all} and g.group_key is not null and {may_start} limit {most})
                union all
                select * from (select g.group_key, 2 from others g where {all} and g.group_key <= {behind} and {may_start} limit {most})
                union all
                select * from (select g.group_key, 3 + (g.group_key <= {behind}) from (select value as group_key from json_each({groups})) g
                                where exists (select 1 from penstock_ready r where r.queue_id = {queue} and r.group_key = g.group_key) and {may_start} order by 2, 1 limit {most})
                union all
                select * from (select g.group_key, 5
                                 from (select t.group_key
                                         from (select l.seq from penstock_leases l where l.queue_id = {queue} and l.until <= {clock}
                                               union all
                                               select d.seq from penstock_scheduled d where d.queue_id = {queue} and d.due <= {clock}) l
                                        cross join {jobs} t on t.seq = l.seq) g
                                where ({all} or g.group_key in (select value from json_each({groups}))) and {may_start}
                                limit {most})) f
         where exists (select 1 from penstock_queues q where q.id = {queue} and not q.paused
                          and (q.max_running = 0 or q.max_running > (select count(*) from penstock_leases l where l.queue_id = q.id)))
         group by f.group_key
         order by min(f.part), f.group_key
         limit {most}) g
 order by g.part, g.group_key
