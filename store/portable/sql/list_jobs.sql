-- The jobs of a queue in one state, without payloads, each with the three numbers of its place in the list. All jobs of the queue are looked at.
select o.seq, coalesce(o.key, ''), o.group_key, o.priority, o.created_at, o.headers, o.attempts, o.failures, o.worker, o.until, o.begun, o.state, o.a, o.b, o.c
  from (select s.*,
               case when s.state = 'running' or s.state = 'delayed' and not {newest} then (extract(epoch from s.until) * 1000000)::bigint
                    when s.state = 'ready' and not {newest} then s.priority else 0 end as a,
               case when s.state = 'ready' and not {newest} then {sign}(extract(epoch from s.ts) * 1000000)::bigint else 0 end as b,
               case when s.state = 'ready' and not {newest} then {sign}s.seq else s.seq end as c
          from (select t.seq, t.key, t.group_key, t.priority, t.created_at, t.headers, t.ts, coalesce(l.attempt, a.attempts, 0) as attempts, a.failures,
                       coalesce(l.worker, '') as worker, l.begun, case when l.seq is null then coalesce(a.due, t.ts) else l.until end as until,
                       case when l.until > c.now then 'running'
                            when l.until is not null then 'ready'
                            when coalesce(a.due, t.ts) > c.now then 'delayed'
                            when {blocked} then 'waiting'
                            else 'ready' end as state
                  from {jobs} t
                 cross join (select clock_timestamp() as now) c
                  left join {schema}.leases l on l.seq = t.seq
                  left join {schema}.tries a on a.seq = t.seq
                 where (not {grouped} or t.group_key = {group})
                   and ({kind} = '' or t.headers ->> 'penstock-kind' = {kind})
                   and ({key} = '' or t.key = {key})
                   and ({created_before}::timestamptz is null or t.created_at < {created_before})
                   and ({created_after}::timestamptz is null or t.created_at > {created_after})) s
         where s.state = {state}) o
 where {behind}
 order by {by}
 limit {most}
