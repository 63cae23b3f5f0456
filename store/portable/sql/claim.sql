-- Leases the next jobs: those never claimed in the given ranges of each priority, those that must be tried again, and the first of each key of $12.
-- All others of these keys wait behind it, and are in no range. Jobs that it looked at and did not take are also returned, without their payload.
-- Jobs that wait may fill what it reads of a range, $9 jobs, or of those to be tried again. Jobs behind these are not taken: there may be jobs that
-- come first. The last time, $10, it is. No lease ends before $14, and nothing is due before $15. $11 bounds the bytes of the taken jobs, on engines
-- that need that. Jobs whose rows another claim has locked are passed over. One that was claimed since this statement began has its lease, or is in
-- tries by now, which "withdraw" finds. max_running can be kept by a claim only that takes turns with all others, $16. So can a rate of the queue. A queue that
-- has policies gives jobs only to a claim that knows of them, {policies}.
with room as materialized (
  select least($3{room_of_group}, case when q.paused or q.policies > {policies} then 0
                        when not $16::boolean and (q.max_running > 0 or q.policies > 1) then 0
                        when q.max_running = 0 then $3
                        else greatest(q.max_running - (select count(*) from {schema}.leases l where l.queue_id = $1 and l.until > least($14, (select clock_timestamp()))), 0) end)::integer as jobs
    from {schema}.queues q
   where q.id = $1
), page as materialized (
  select u.*, row_number() over (order by u.priority, u.ts {dir}, u.seq {dir}) as place, {before} as before
    from (
      select c.*
        from unnest($6::smallint[], $7::timestamptz[], $8::timestamptz[]) with ordinality r(priority, after, upto, range)
        cross join lateral (
          select r.range, t.priority, t.ts, t.seq, t.created_at, t.key, t.headers, t.payload, 0 as attempts, true as fresh, {blocked} as blocked
            from {jobs} t
           where t.group_key = $2 and t.priority = r.priority and t.ts > r.after and t.ts <= r.upto and t.ts <= (select clock_timestamp())
             and (select l.lease from {schema}.leases l where l.seq = t.seq) is null -- no join, which might read all
             and (select a.seq from {schema}.tries a where a.seq = t.seq) is null
           order by t.ts {dir}, t.seq {dir}
           limit $9) c
      union all
      (select -1, h.priority, h.ts, h.seq, h.created_at, h.key, h.headers, h.payload, 0, true, false
         from unnest($12::text[]) k(key)
         cross join lateral (select t.* from {jobs} t where t.key = k.key and t.key <> '' order by t.ts, t.seq limit 1) h
        where h.group_key = $2 and h.ts <= (select clock_timestamp())
          and (select min(l.lease) from {schema}.leases l where l.queue_id - $1 = 0 and l.key = k.key and l.key <> '') is null
          and (select min(a.seq) from {schema}.tries a where a.queue_id - $1 = 0 and a.key = k.key and a.key <> '') is null
          and not exists (select from unnest($6::smallint[], $7::timestamptz[], $8::timestamptz[]) r(priority, after, upto)
                           where h.priority = r.priority and h.ts > r.after and h.ts <= r.upto)
        order by h.priority, h.ts {dir}, h.seq {dir}
        limit $9)
      union all
      (select 0, t.priority, t.ts, t.seq, t.created_at, t.key, t.headers, t.payload, a.attempts, false, {blocked}
         from {schema}.tries a
         join {jobs} t on t.group_key = any (array[a.group_key]) and t.priority = a.priority and t.ts = a.ts and t.seq = a.seq
        where a.queue_id = $1 and a.group_key = $2 and a.due > $15 and a.due <= (select clock_timestamp())
          and (select l.lease from {schema}.leases l where l.seq = a.seq) is null
        order by a.due
        limit $9)) u
), reach as materialized ( -- how far of the page may be taken: null is all of it
  select min(f.place) as place
    from (select case when p.range = 0 then 0 else max(p.place) end as place
            from page p
           where not $10::boolean
           group by p.range
          having count(*) >= $9 and count(case when not p.blocked then 1 end) < $3) f
), free as materialized ( -- rows are looked up and locked one by one, in order, until there are enough
  select p.place
    from (select p.* from page p
           where not p.blocked
             and p.before < $11::bigint
             and p.place <= (select coalesce(r.place, p.place) from reach r)
           order by p.place) p
    {lock_jobs}
   limit (select coalesce((select case when r.jobs > 0 then r.jobs + case when (select count(*) from page) < $9 then 0 else $17::integer end end from room r), 0))
), taken as (
  insert into {schema}.leases (lease, queue_id, seq, group_key, priority, ts, key, attempt, until, worker, claim)
  select $13 + row_number() over (order by p.place), $1, p.seq, $2, p.priority, p.ts, coalesce(p.key, ''), p.attempts + 1, clock_timestamp() + $4 * interval '1 microsecond', $5, $13
    from page p
   where p.place in (select f.place from free f)
   order by p.place
  {pass_taken}
  returning lease, seq, attempt, until
)
select p.priority, p.ts, p.seq, p.fresh, p.blocked, coalesce(t.lease, 0), t.attempt, t.until, p.created_at, coalesce(p.key, ''),
       case when t.lease is not null then p.headers end, case when t.lease is not null then p.payload end
  from page p
  left join taken t on t.seq = p.seq
 order by p.place
