-- For a queue's operators: cancel jobs, pause, deal with dead letters, and look.

-- _retry_dead_jobs has dead letters run again, and jobs that are delayed, or failed and wait for their next attempt, have it now. It takes the locks of their
-- unique keys, in one order, and then locks their rows. One that the queue refuses stays what it is, and the others run: it may have been written by hand,
-- or a job that has not ended has its unique_key. If it refuses all, the error is raised. Messages are published.
create or replace function _retry_dead_jobs(queue int, ids bigint[]) returns bigint
language plpgsql volatile set search_path from current as $$ declare
    half constant int := cardinality(ids) / 2;
    many bigint;
    waited bigint;
    twin record;
    why text;
    messages constant bigint[] := array(select d.id from _dead_job d where d.queue = _retry_dead_jobs.queue and d.id = any (ids) and d.priority = 16 order by d.id);
begin
    for twin in select r.* from _refused_letters(queue, ids) r loop ids := array_remove(ids, twin.id); end loop;
    if twin.id is not null and not exists (select from _dead_job d where d.queue = _retry_dead_jobs.queue and d.id = any (ids)) then
        raise exception 'the dead letter % cannot run again: job % has the same unique_key, %, and has not ended', twin.id, twin.twin, quote_literal(twin.key)
        using errcode = '23505', hint = 'discard the dead letter, or retry it once that job has ended';
    end if;
    execute format($sql$
        with d as (delete from _dead_job d where d.queue = $1 and d.id = any ($2) and d.priority < 16 returning d.*),
        i as (
            insert into %s (id, attempt, created_at, priority, group_key, key, headers, payload, failures)
            select d.id, d.attempt, d.created_at, d.priority, d.group_key, d.key, d.headers, d.payload, d.failures from d order by d.id)
        select count(*), _count_holders($1, array_agg(d.headers), 1, -1) from d$sql$,
        (select _q(q.name) from _queue q where q.id = queue)) into many using queue, ids;
    update _scheduled s set due = clock_timestamp()
     where s.queue = _retry_dead_jobs.queue and s.id = any (ids) and s.due > clock_timestamp() and s.due < 'infinity';
    get diagnostics waited = row_count;
    if messages <> '{}' then
        many := many + _publish_rows(queue, messages, '_dead_job');
        why := (select d.failures -> -1 ->> 'error' from _dead_job d where d.queue = _retry_dead_jobs.queue and d.id = any (messages) order by d.id limit 1); -- another may have retried them meanwhile
        if many + waited = 0 and why is not null then
            raise exception '%', why using errcode = '55000', hint = 'make the outbox take the message, and retry it again, or discard it';
        end if;
    end if;
    return many + waited;
exception when check_violation or invalid_parameter_value or untranslatable_character then
    many := 0;
    if half > 0 then
        for n in 1 .. 2 loop
            begin
                many := many + _retry_dead_jobs(queue, case n when 1 then ids[1:half] else ids[half + 1:] end);
            exception when check_violation or invalid_parameter_value or untranslatable_character or object_not_in_prerequisite_state then
                null;
            end;
        end loop;
    end if;
    if many = 0 then raise; end if;
    return many;
end $$;

-- _cancel removes jobs wherever they are; running ones lose their lease. It looks into segments by age, _scheduled and then
-- _lease, so that it finds one that is claimed or carried over meanwhile. Another may have come back to a segment behind it. So if it
-- misses one, a statement looks everywhere at once, and sees each job in one place. If it finds any, _cancel looks again. It locks their
-- rows, those of leases in the order of {ack}, and waits for a transaction that has one. A job that never came back has only its seq: that
-- is looked up in each group and priority or, where these are more than a thousand, by reading the segment.
create or replace function _cancel(queue int, ids bigint[]) returns int
language plpgsql volatile set search_path from current
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off set plan_cache_mode = force_generic_plan
as $$ declare
    name       constant text := (select q.name from _queue q where q.id = queue);
    priorities constant smallint[] := (_queue_flags(name)).priorities;
    keys       text[] := '{}'; -- one for each job, null without a key
    group_keys text[]; segment regclass; done regclass[]; again boolean := true;
begin
    while again loop
        done := '{}';
        loop
            -- The oldest one that has held a job since it was emptied: jobs that are carried over go to younger ones.
            segment := (select s.oid::regclass from _segments(name) s left join _segment g on g.queue = _cancel.queue and g.slot = s.slot
                         where s.oid <> all (done) and pg_relation_size(s.oid) > 0 order by s.slot = (_ring_position(name)).slot, g.turn nulls first limit 1);
            exit when segment is null;
            done := done || segment;
            group_keys := _groups_in(segment, queue, 1000);
            if cardinality(group_keys) * cardinality(priorities) * cardinality(ids) <= 1000 then -- so group_keys is the whole list
                execute format('with d as (delete from %1$s t where t.ctid = any (array(
                                    select x.ctid from unnest($1) g(group_key) cross join unnest($2) p(priority) cross join unnest($3) i(seq) cross join lateral (
                                        select t.ctid from %1$s t where t.group_key = g.group_key and t.priority = p.priority and t.seq = i.seq and t.id is null for update) x)) returning t.*)
                                select $5 || array_agg(d.key) filter (where _count_holders($4, array[d.headers], -1, 0)) from d', segment) into keys using group_keys, priorities, ids, queue, keys;
                execute format('with d as (delete from %s t where t.id = any ($1) returning t.*) select $3 || array_agg(d.key) filter (where _count_holders($2, array[d.headers], -1, 0)) from d', segment) into keys using ids, queue, keys;
            else
                keys := keys || _cancel_in(queue, segment, ids);
            end if;
        end loop;
        with d as (delete from _scheduled l where l.queue = _cancel.queue and l.id = any (ids) returning l.*)
        select keys || array_agg(d.key) filter (where _count_holders(_cancel.queue, array[d.headers], -1, 0)) into keys from d;
        perform from _lease l -- in the order of {ack}
          where l.queue = _cancel.queue and (l.id = any (ids) or exists (select from unnest(l.jobs) j where j.id = any (ids)))
          order by array_position(_listed('_lease_slot'), l.slot::int), l.jobs is null, l.lease for update;
        perform _part(queue, array(select j.lease from _lease l cross join lateral unnest(l.jobs) j where l.queue = _cancel.queue and j.id = any (ids)));
        with d as (delete from _lease l where l.queue = _cancel.queue and l.id = any (ids) returning l.*)
        select keys || array_agg(d.key) filter (where _count_holders(_cancel.queue, array[d.headers], -1, 0)) into keys from d;
        exit when cardinality(keys) >= cardinality(ids);
        execute format('select exists (select from %s t where t.id = any ($1)) or exists (select from _scheduled w where w.queue = $2 and w.id = any ($1))
                            or exists (select from _lease l where l.queue = $2 and (l.id = any ($1) or exists (select from unnest(l.jobs) j where j.id = any ($1))))', _q(name)) into again using ids, queue;
    end loop;
    perform _promote(queue, array_agg(distinct k)) from unnest(keys) k where k is not null having count(*) > 0;
    return cardinality(keys);
end $$;

-- _cancel_in removes jobs of a segment by reading all of it, and returns their keys, null for one without a key.
create or replace function _cancel_in(queue int, segment regclass, ids bigint[]) returns text[]
language plpgsql volatile set search_path from current set enable_seqscan = on as $$ declare keys text[];
begin
    execute format('with d as (delete from %s t where coalesce(t.id, t.seq) = any ($1) returning t.*)
                    select array_agg(d.key) filter (where _count_holders($2, array[d.headers], -1, 0)) from d', segment) into keys using ids, queue;
    return keys;
end $$;

-- _find_job returns where a job is, without its payload: null if it has ended and is not kept. One statement looks at each place, so that a
-- job that moves is seen. The ring has no index of ids. So a job that was not tried yet is looked up in each group and priority;
-- with more than 1,000 of these pairs the queue is read. So are the queue's leases. Of done jobs it looks at the latest 2,000 pages.
create or replace function _find_job(queue int, id bigint) returns jsonb
language plpgsql volatile set search_path from current
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off set plan_cache_mode = force_generic_plan
as $$ declare
    ring       constant text := (select q.name from _queue q where q.id = queue);
    priorities constant smallint[] := (_queue_flags(ring)).priorities;
    group_keys constant text[] := _groups_in(_q(ring)::regclass, queue, 1000);
    few        constant boolean := cardinality(group_keys) * cardinality(priorities) <= 1000;
    found      jsonb;
    done       jsonb;
begin
    execute format($sql$
        select jsonb_build_object('id', $2, 'state', j.state, 'kind', coalesce(j.headers ->> 'penstock-kind', ''), 'key', j.key, 'group_key', j.group_key, 'priority', j.priority,
                                  'attempt', greatest(j.attempt, 0), 'created_at', j.created_at, 'claimed_at', j.claimed_at, 'until', j.until, 'ended_at', j.ended_at, 'worker', j.worker,
                                  'error', j.failures -> -1 ->> 'error', 'report', coalesce(j.report, (j.headers ->> 'penstock-report')::jsonb))
          from (select 'ready' as state, t.key, t.group_key, t.priority, t.attempt, t.created_at, t.headers, t.failures, null as worker, null::timestamptz as claimed_at,
                       null::timestamptz as until, null::timestamptz as ended_at, null::jsonb as report
                  from %2$s %1$s t where %3$s t.seq = $2 and t.id is null
                union all
                select 'ready', t.key, t.group_key, t.priority, t.attempt, t.created_at, t.headers, t.failures, null, null, null, null, null from %1$s t where t.id = $2
                union all
                select case when not isfinite(s.due) then 'waiting' when s.due > clock_timestamp() then 'delayed' else 'ready' end, s.key, s.group_key, s.priority, s.attempt, s.created_at, s.headers, s.failures,
                       null, null, case when isfinite(s.due) and s.due > clock_timestamp() then s.due end, null, null
                  from _scheduled s where s.queue = $1 and s.id = $2
                union all
                select 'running', l.key, l.group_key, l.priority, coalesce(l.attempt, j.attempt), coalesce(l.created_at, j.created_at), coalesce(l.headers, j.headers), coalesce(l.failures, j.failures),
                       l.worker, l.claimed_at, l.lease_until, null, l.report
                  from _lease l left join lateral unnest(l.jobs) j on get_bit(l.done, (j.lease >> 1 & 255)::int) = 0 where l.queue = $1 and (l.id = $2 or j.id = $2)
                union all
                select 'dead', d.key, d.group_key, d.priority, d.attempt, d.created_at, d.headers, d.failures, null, null, null, d.died_at, null
                  from _dead_job d where d.queue = $1 and d.id = $2) j$sql$,
        _q(ring), case when few then 'unnest($3) g(group_key) cross join unnest($4) p(priority) cross join' end, case when few then 't.group_key = g.group_key and t.priority = p.priority and' end)
       into found using queue, id, group_keys, priorities;
    if found is null then
        done := _done_jobs(queue, 1, null, array[id]) #> '{jobs,0}';
        found := done - '{failures,finished_at,position,page,line,place}'::text[] || jsonb_build_object('state', 'done', 'ended_at', done -> 'finished_at', 'error', done -> 'failures' -> -1 ->> 'error');
    end if;
    return found;
end $$;

-- _groups_in lists the groups that may have jobs in a segment, up to most. If a group has a skip map, it does not
-- look at its jobs, because the first ones may be dead. Between such groups it goes from one to the next in the
-- index.
create or replace function _groups_in(segment regclass, queue int, most int) returns text[]
language plpgsql volatile set search_path from current set enable_sort = off as $$ declare group_keys text[];
begin
    execute format($sql$
        with recursive g(group_key) as (
            select '' collate "C"
            union all
            select case when m.group_key is null then (select t.group_key from %1$s t where t.group_key > g.group_key order by t.group_key limit 1)
                        else coalesce((select t.group_key from %1$s t where t.group_key > g.group_key and t.group_key < m.group_key order by t.group_key limit 1), m.group_key) end
              from g left join lateral (select m.group_key from _skip_map m where m.queue = $1 and m.group_key > g.group_key order by m.group_key limit 1) m on true
             where g.group_key is not null)
        select array_agg(f.group_key) from (select g.group_key from g where g.group_key is not null limit $2 + 1) f$sql$, segment)
       into group_keys using queue, most;
    return group_keys;
end $$;

-- _count_jobs counts jobs by where they are, in one snapshot, so that each is counted once. It is stable: its
-- statements have its caller's snapshot. It reads what there is in the ring's segments: one that is empty costs a look
-- at its size. Of the rings that queues share it reads only this one's part, by statements that a session plans once.
-- oldest is in us.
--
-- Of a key one job may run, unless one runs already, or an earlier one waits to be
-- tried again; the others wait for it. A job that is due, but was not moved yet, is ready.
create or replace function _count_jobs(queue int, out ready bigint, out running bigint, out delayed bigint, out waiting bigint, out dead bigint, out oldest bigint)
language plpgsql stable set search_path from current set enable_seqscan = on set enable_bitmapscan = on as $$ declare
    name  constant text := (select q.name from _queue q where q.id = queue);
    ring  constant regclass := _q(name)::regclass;
    keyed constant boolean := (_queue_flags(name)).keyed;
    used  regclass[];
    jobs  text;
    first timestamptz;
    scheduled record;
begin
    loop
        used := array(select i.inhrelid from pg_inherits i where i.inhparent = ring and pg_relation_size(i.inhrelid) > 0);
        jobs := (select string_agg(format(' select t.key, coalesce(t.id, t.seq) as id, t.created_at from %s t', u), ' union all') from unnest(used) u);
        if jobs is null then
            ready := 0;
            waiting := 0;
        elsif not keyed then
            execute format('select count(*), 0, min(t.created_at) from (%s) t', jobs) into ready, waiting, first;
        else
            execute format($sql$
                with line as (select t.key, count(*) as n, min(t.id) as head, min(t.created_at) as oldest from (%s) t group by t.key),
                ring as (
                    select l.n, l.oldest, case
                               when l.key is null then l.n
                               when exists (select from _lease e where e.queue = $1 and e.key = l.key)
                                 or exists (select from _scheduled w where w.queue = $1 and w.key = l.key and w.id < l.head and (w.attempt <> 0 or w.due = 'infinity')) then 0
                               else 1 end as may
                      from line l)
                select coalesce(sum(r.may), 0), coalesce(sum(r.n - r.may), 0), min(r.oldest) filter (where r.may > 0) from ring r$sql$, jobs)
               into ready, waiting, first using queue;
        end if;
        -- Jobs that were carried over to a segment that came into use between the two looks were in none that was read.
        exit when not exists (select from pg_inherits i where i.inhparent = ring and i.inhrelid <> all (used) and pg_relation_size(i.inhrelid) > 0);
    end loop;
    select count(*) filter (where isfinite(w.due) and w.due <= clock_timestamp()) as ready,
           count(*) filter (where w.due > clock_timestamp() and w.due < 'infinity') as delayed,
           count(*) filter (where not isfinite(w.due)) as waiting,
           min(w.created_at) filter (where isfinite(w.due) and w.due <= clock_timestamp()) as oldest
      into scheduled from _scheduled w where w.queue = _count_jobs.queue;
    ready := ready + scheduled.ready;
    delayed := scheduled.delayed;
    waiting := waiting + scheduled.waiting;
    running := (select coalesce(sum(coalesce(256 - bit_count(e.done), 1)), 0) from _lease e where e.queue = _count_jobs.queue); -- see _part
    dead := (select count(*) from _dead_job d where d.queue = _count_jobs.queue);
    oldest := coalesce(extract(epoch from greatest(interval '0', clock_timestamp() - least(scheduled.oldest, first))) * 1000000, 0);
end $$;

-- _count returns the counts of _count_jobs, and how many jobs have expired so far. If most is given it counts up to most of each kind, and reads little more
-- than it counts. Of groups with jobs it looks at a thousand then; the figure before the last is 1 if there may be more.
create or replace function _count(queue int, most int) returns bigint[]
language plpgsql volatile set search_path from current set jit = off set enable_seqscan = off set enable_bitmapscan = off as $$ declare
    expired constant bigint := (select _register(q.name, 'expired') from _queue q where q.id = queue);
    at_once constant int := 50;
    last    text := '';
    n       record;
    ready   bigint := 0;
    waiting bigint := 0;
    oldest  bigint := 0;
    more    boolean := true; -- until all were looked at
begin
    if most is null then
        return (select array[c.ready, c.running, c.delayed, c.waiting, c.dead, c.oldest, 0, expired] from _count_jobs(queue) c);
    elsif most not between 1 and 100000 then
        raise exception 'up to % jobs cannot be counted', most using errcode = '22023', hint = 'give 1 to 100000';
    end if;
    for i in 1..20 loop
        select count(*) as groups, coalesce(sum(g.ready), 0)::bigint as ready, coalesce(sum(g.waiting), 0)::bigint as waiting, coalesce(max(g.oldest), 0) as oldest, max(g.group_key collate "C") as last, coalesce(bool_or(g.more), false) as more
          into n from _count_groups(queue, last, at_once, most) g;
        ready := ready + n.ready;
        waiting := waiting + n.waiting;
        oldest := greatest(oldest, n.oldest);
        if n.groups < at_once and not n.more then
            more := false;
            exit;
        end if;
        exit when n.groups < at_once or ready >= most;
        last := n.last;
    end loop;
    return array[least(ready, most),
        (select least(coalesce(sum(coalesce(256 - bit_count(x.done), 1)), 0), most) from (select e.done from _lease e where e.queue = _count.queue limit most) x),
        (select count(*) from (select from _scheduled w where w.queue = _count.queue and w.due > clock_timestamp() and w.due < 'infinity' limit most) x),
        least(waiting, most),
        (select count(*) from (select from _dead_job d where d.queue = _count.queue limit most) x),
        oldest, more::int, expired];
end $$;
