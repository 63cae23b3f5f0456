-- The jobs of a queue in one state, without payloads, each with the three numbers of its place in the list. All jobs of that state are looked at.
select coalesce(t.id, t.seq), coalesce(t.key, ''), t.group_key, t.priority, t.created_at * 1000, coalesce(t.headers, ''), coalesce(o.attempt, {tried}), {tried_failures},
       o.worker, o.until, null, o.state, o.a, o.b, o.c
  from (select abs(r.rank) as seq, null as attempt, '' as worker, null as until, 'ready' as state, case when {newest} then 0 else r.priority end as a,
               case when {newest} then 0 else r.rank end as b, abs(r.rank) as c
          from penstock_ready r where {state} = 'ready' and r.queue_id = {queue} and r.group_key = {group}
        union all
        select l.seq, l.attempt, l.worker, null, 'ready', case when {newest} then 0 else u.priority end, case when {newest} then 0 else {sign}l.seq end, l.seq
          from penstock_leases l join {jobs} u on u.seq = l.seq where {state} = 'ready' and l.queue_id = {queue} and l.until <= {clock}
        union all
        select l.seq, l.attempt, l.worker, l.until, 'running', l.until, 0, l.seq
          from penstock_leases l where {state} = 'running' and l.queue_id = {queue} and l.until > {clock}
        union all
        select d.seq, null, '', d.due, 'delayed', case when {newest} then 0 else d.due end, 0, d.seq
          from penstock_scheduled d where {state} = 'delayed' and d.queue_id = {queue} and d.due < 9000000000000000000
        union all
        select d.seq, null, '', null, 'waiting for barriers', 0, 0, d.seq
          from penstock_scheduled d where {state} = 'waiting' and d.queue_id = {queue} and d.due = 9000000000000000000
        union all
        select abs(k.rank), null, '', null, 'waiting', 0, 0, abs(k.rank)
          from penstock_keyed k
         where {state} = 'waiting' and k.queue_id = {queue}
           and not exists (select 1 from penstock_ready r where r.queue_id = k.queue_id and r.group_key = k.group_key and r.priority = k.priority and r.rank = k.rank)) o
 cross join {jobs} t on t.seq = o.seq
  left join penstock_histories h on h.queue_id = {queue} and h.seq = t.seq
 where (not {grouped} or t.group_key = {group})
   and ({kind} = '' or t.headers ->> '$."penstock-kind"' = {kind})
   and ({key} = '' or t.key = {key})
   and ({created_before} is null or t.created_at * 1000 < {created_before})
   and ({created_after} is null or t.created_at * 1000 > {created_after})
   and {behind}
 order by {by}
 limit {most}
