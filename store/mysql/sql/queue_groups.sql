-- The groups of a queue, those after one. A job whose lease has ended is ready: the next claim finds it.
select o.group_key, sum(o.state = 'ready'), sum(o.state = 'running'), sum(o.state = 'delayed'),
       sum(o.state = 'waiting'), sum(o.state = 'dead'), min(case when o.state = 'ready' then o.created_at end), utc_timestamp(6)
  from (select t.group_key, t.created_at,
               case when t.place = 127 then 'dead'
                    when l.until > utc_timestamp(6) then 'running'
                    when l.until is not null then 'ready'
                    when coalesce(a.due, t.ts) > utc_timestamp(6) then 'delayed'
                    when {blocked} then 'waiting'
                    else 'ready' end as state
          from (select j.group_key, j.created_at, j.ts, j.seq, j.`key`, j.place from {jobs} j limit {scan}) t
          left join {schema}.leases l on l.queue_id = {queue} and l.seq = t.seq
          left join {schema}.tries a on a.queue_id = {queue} and a.seq = t.seq) o
 where {all} or o.group_key > {after}
 group by o.group_key
 order by o.group_key
 limit {most}
