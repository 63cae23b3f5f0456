-- Jobs wherever they are, the newest first: of an id, or of a key. A ready job that was not tried yet is found by its id
-- within its group: the ring has no other index.
-- In place of a worker a job that waits for barriers has those that are not open.
--   $1 queue, $2 id or null, $3 key or null, $4 group, $5 limit
with q as materialized (select id from {schema}._queue where name = $1::text),
found as materialized (
    (select t.seq as id, t.key, t.group_key, t.priority, t.attempt, t.created_at, t.headers, t.payload, t.failures, 'ready' as state, '' as worker, null::timestamptz as due, null::timestamptz as claimed_at
       from generate_series(-16, 15) p, {queue} t
      where t.group_key = $4::text and t.priority = p and t.seq = $2::bigint and t.id is null)
    union all
    (select t.id, t.key, t.group_key, t.priority, t.attempt, t.created_at, t.headers, t.payload, t.failures, 'ready', '', null, null from {queue} t where t.id = $2)
    union all
    (select coalesce(t.id, t.seq), t.key, t.group_key, t.priority, t.attempt, t.created_at, t.headers, t.payload, t.failures, 'ready', '', null, null
       from {queue} t where t.key = $3::text order by t.id, t.seq limit $5::bigint)
    union all
    (select s.id, s.key, s.group_key, s.priority, s.attempt, s.created_at, s.headers, s.payload, s.failures,
            case s.due when 'infinity' then 'behind its key' when '-infinity' then 'waiting for barriers' else 'delayed' end,
            coalesce((select string_agg(concat('barrier ', b, ': ', t.running, ' not ended', case when t.dead > 0 then concat(', ', t.dead, ' dead') end, case t.stage when 0 then ', not sealed' end), '; ' order by b)
                        from unnest({schema}._waits_for(s.headers)) b cross join lateral {schema}._barrier_state(b) t where t.stage < 2 and s.due = '-infinity'), ''),
            case when isfinite(s.due) then s.due end, null
       from {schema}._scheduled s where s.queue = (select id from q) and (s.id = $2 or s.key = $3) limit $5)
    union all
    (select d.id, d.key, d.group_key, d.priority, d.attempt, d.created_at, d.headers, d.payload, d.failures, 'dead', '', d.died_at, null
       from {schema}._dead_job d where d.queue = (select id from q) and d.id = $2)
    union all
    (select d.id, d.key, d.group_key, d.priority, d.attempt, d.created_at, d.headers, d.payload, d.failures, 'dead', '', d.died_at, null
       from (select * from {schema}._dead_job d where d.queue = (select id from q) and $2 is null order by d.id desc limit 20000) d where d.key = $3 limit $5)
),
-- An id is in one place, and leases have no index of ids: they are read once, if it was not found elsewhere.
held as materialized (
    select l.* from {schema}._lease l
     where l.queue = (select id from q) and ($3 is not null or not exists (select from found)) and (l.id = $2 or l.key = $3 or $2 is not null and l.jobs is not null)
)
select * from (
    select * from found
    union all
    (select l.id, l.key, l.group_key, l.priority, l.attempt, l.created_at, case when l.report is null then l.headers else coalesce(l.headers, '{}') || jsonb_build_object('penstock-report', l.report::text) end, l.payload, l.failures, 'running', l.worker, l.lease_until, l.claimed_at
       from held l where l.jobs is null limit $5)
    union all
    (select j.id, null, l.group_key, l.priority, j.attempt, j.created_at, j.headers, j.payload, j.failures, 'running', l.worker, l.lease_until, l.claimed_at
       from held l cross join lateral unnest(l.jobs) j where j.id = $2 and get_bit(l.done, (j.lease >> 1 & 255)::int) = 0)
) f order by id desc limit $5
