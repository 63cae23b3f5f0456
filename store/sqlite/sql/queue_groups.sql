-- The groups of a queue, from one on. How its jobs are counted: see queue_status.sql.
select f.group_key, f.ready, f.running, f.delayed, f.waiting, f.dead, coalesce((select t.created_at from {table} t where t.seq = f.oldest), 0)
  from (
    select o.group_key, sum(o.ready) as ready, sum(o.running) as running, sum(o.delayed) as delayed, sum(o.waiting) as waiting, sum(o.dead) as dead, min(o.oldest) as oldest
      from (
        select r.group_key as group_key, count(*) as ready, 0 as running, 0 as delayed, 0 as waiting, 0 as dead, min(abs(r.rank)) as oldest
          from penstock_ready r where r.queue_id = :queue and r.group_key >= :from group by r.group_key
        union all
        select t.group_key, sum(l.until <= :now), sum(l.until > :now), 0, 0, 0, null
          from penstock_leases l cross join {table} t on t.seq = l.seq where l.queue_id = :queue group by t.group_key
        union all
        select t.group_key, 0, 0, count(*), 0, 0, null
          from penstock_scheduled d cross join {table} t on t.seq = d.seq where d.queue_id = :queue group by t.group_key
        union all
        select k.group_key, 0, 0, 0, count(*), 0, null
          from penstock_keyed k
         where k.queue_id = :queue
           and not exists (select 1 from penstock_ready r where r.queue_id = k.queue_id and r.group_key = k.group_key and r.priority = k.priority and r.rank = k.rank)
         group by k.group_key
        union all
        select d.group_key, 0, 0, 0, 0, count(*), null from penstock_dead_jobs d where d.queue_id = :queue group by d.group_key) o
     where o.group_key >= :from
     group by o.group_key
     order by o.group_key
     limit :most) f
 order by f.group_key
