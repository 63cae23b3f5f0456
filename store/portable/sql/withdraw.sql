-- Ends leases of a claim that must not be. Another claim has had the job since this one looked, or the job waits for another of its key by now, or the
-- claim has more than it may have. No other claim can have a lease of these jobs, or of their keys, until this one commits.
with l as materialized (
  select lease, attempt, group_key, priority, ts, seq from {schema}.leases where queue_id - {queue} = 0 and {lease in leases}
), now as materialized (
  select l.lease, coalesce(a.stands, l.attempt = 1) as stands, t.blocked
    from l
    cross join lateral (select {blocked} as blocked from {jobs} t where t.group_key = l.group_key and t.priority = l.priority and t.ts = l.ts and t.seq = l.seq limit 1) t
    left join lateral (select a.attempts + 1 = l.attempt and a.due <= (select clock_timestamp()) as stands from {schema}.tries a where a.seq = l.seq limit 1) a on true
)
delete from {schema}.leases
 where queue_id - {queue} = 0 and {lease in leases}
   and lease not in (select n.lease from now n where n.stands and not n.blocked order by n.lease limit {most})
returning seq
