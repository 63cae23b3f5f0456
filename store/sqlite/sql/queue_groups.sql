-- The groups of a queue, those after one, of a limited number of rows of each kind. Of the keyed jobs the first of each key that is not busy is ready, the
-- others wait, and so do those that are due at 9e18, for barriers. A job whose lease has ended is also ready: the next claim finds it.
select f.group_key, f.ready, f.running, f.delayed, f.waiting, f.dead, (select t.created_at * 1000 from {jobs} t where t.seq = f.oldest), {clock}
  from (select o.group_key, sum(o.ready) as ready, sum(o.running) as running, sum(o.delayed) as delayed, sum(o.waiting) as waiting, sum(o.dead) as dead, min(o.oldest) as oldest
          from (
    select r.group_key, count(*) as ready, 0 as running, 0 as delayed, 0 as waiting, 0 as dead, min(abs(r.rank)) as oldest
      from (select r.* from penstock_ready r where r.queue_id = {queue} and r.group_key >= {after} limit {scan}) r group by r.group_key
    union all
    select t.group_key, sum(l.until <= {clock}), sum(l.until > {clock}), 0, 0, 0, null
      from (select l.* from penstock_leases l where l.queue_id = {queue} limit {scan}) l cross join {jobs} t on t.seq = l.seq group by t.group_key
    union all
    select t.group_key, 0, 0, sum(d.due < 9000000000000000000), sum(d.due = 9000000000000000000), 0, null
      from (select d.* from penstock_scheduled d where d.queue_id = {queue} limit {scan}) d cross join {jobs} t on t.seq = d.seq group by t.group_key
    union all
    select k.group_key, 0, 0, 0, count(*), 0, null
      from (select k.* from penstock_keyed k where k.queue_id = {queue} limit {scan}) k
     where not exists (select 1 from penstock_ready r where r.queue_id = k.queue_id and r.group_key = k.group_key and r.priority = k.priority and r.rank = k.rank)
     group by k.group_key
    union all
    select d.group_key, 0, 0, 0, 0, count(*), null
      from (select d.group_key from penstock_dead_jobs d where d.queue_id = {queue} limit {scan}) d group by d.group_key) o
         where {all} or o.group_key > {after}
         group by o.group_key
         order by o.group_key
         limit {most}) f
 order by f.group_key
