-- The groups of a queue, those after one. A job whose lease has ended is ready: the next claim finds it.
select o.group_key, count(*) filter (where o.state = 'ready'), count(*) filter (where o.state = 'running'), count(*) filter (where o.state = 'delayed'),
       count(*) filter (where o.state = 'waiting'), count(*) filter (where o.state = 'dead'), min(o.created_at) filter (where o.state = 'ready'), clock_timestamp()
  from (select t.group_key, t.created_at,
               case when l.until > c.now then 'running'
                    when l.until is not null then 'ready'
                    when coalesce(a.due, t.ts) > c.now then 'delayed'
                    when {blocked} then 'waiting'
                    else 'ready' end as state
          from (select j.group_key, j.created_at, j.ts, j.seq, j.key from {jobs} j limit {scan}) t
         cross join (select clock_timestamp() as now) c
          left join {schema}.leases l on l.seq = t.seq
          left join {schema}.tries a on a.seq = t.seq
        union all
        select d.group_key, d.died_at, 'dead' from (select d.group_key, d.died_at from {schema}.dead_jobs d where d.queue_id = {queue} limit {scan}) d) o
 where {all} or o.group_key > {after}
 group by o.group_key
 order by o.group_key
 limit {most}
