-- The ring of a queue: its segments, one after the other, and each again and again.
--
--   written to   the register ring points at it
--   listed       jobs are still taken from it. When nobody can commit jobs into it any more, a
--                few that are left, and stay, are carried over to the next segment, in order
--   retired      without jobs and off the list, so that transactions that take jobs do not lock
--                it; truncated as soon as its lock is free
--   free         empty; of all others _segment has a row
--
-- While long transactions overlap, each of which has taken a job, there is no moment without a
-- lock on a segment that is listed. So it leaves the list first.

-- _job_in returns the place of a job of a segment, null if the segment holds none. Jobs are taken from one end and it
-- looks from the other: while some are left, that is one probe. If only one at the near end is left, and a snapshot is
-- pinned, it steps over all dead entries. So it looks first at the job that such a search found before.
create or replace function _job_in(segment text, lifo boolean, known tid default null) returns tid
language plpgsql volatile set search_path from current as $$ declare job tid;
begin
    if known is not null then
        execute format('select t.ctid from %s t where t.ctid = $1', segment) into job using known;
    end if;
    if job is null then
        execute format('select t.ctid from %s t order by t.xid %s limit 1', segment, case when lifo then 'asc' else 'desc' end) into job;
    end if;
    return job;
end $$;

-- _writers_in lists the transactions that may have written into a segment.
create or replace function _writers_in(segment text) returns text[]
language sql volatile set search_path from current as $$
    select coalesce(array_agg(distinct l.virtualtransaction), '{}')
      from pg_locks l
     where l.locktype = 'relation' and l.relation = segment::regclass and l.pid is distinct from pg_backend_pid()
       and l.database = (select d.oid from pg_database d where d.datname = current_database())
       and l.mode not in ('AccessShareLock', 'RowShareLock') $$;

-- _still_in returns whether one of the writers of a segment has not ended. Those that came after the segment was left
-- behind take from it and do not write. A prepared transaction has another name than before.
create or replace function _still_in(segment text, writers text[]) returns boolean
language sql volatile set search_path from current
as $$ select exists (select from unnest(_writers_in(segment)) w where w = any (writers) or w like '-1/%') $$;

-- _truncate truncates a segment, or one of a pair, that is off the list, unless a transaction still uses it; it returns
-- whether it did. A row that matters may have come, which is looked for under the lock. carry is a statement that saves rows. And a dump may be about to
-- read rows that were there before they were moved, or taken.
create or replace function _truncate(segment text, alive text default 'true', carry text default null) returns boolean
language plpgsql volatile set search_path from current set lock_timeout = '20ms' as $$ declare late boolean;
begin
    perform _step_back_for_dumps(segment); -- also one that has locked it: pg_dump --jobs fails where its lock is waited for
    execute format('lock table %s in access exclusive mode', segment);
    perform _step_back_for_dumps(segment);
    execute format('select exists (select from %s r where %s)', segment, alive) into late;
    if late then return false; end if;
    if carry is not null then execute carry; end if;
    execute format('truncate table %s', segment);
    perform _step_back_for_dumps(segment);
    return true;
exception when lock_not_available then
    return false;
end $$;

-- _lock_again returns when to try to lock a segment again: less and less often, because the attempt hinders a pg_dump,
-- for example, which has the lock.
create or replace function _lock_again(since timestamptz) returns timestamptz
language sql volatile
return clock_timestamp() + least(greatest(clock_timestamp() - since, interval '1 s'), interval '16 s');

-- _to_the_end moves jobs of a segment, up to a seq, to the end of their queue, and returns how many.
create or replace function _to_the_end(q _queue, segment text, upto bigint default 9223372036854775807) returns int
language plpgsql volatile set search_path from current as $$ declare many int;
begin
    execute format($sql$
        with d as (
            delete from %1$s t where t.ctid = any (array(select t.ctid from %1$s t where t.seq <= $1 limit 10000 for update skip locked)) returning t.*)
        insert into %2$s (id, attempt, created_at, priority, group_key, key, headers, payload, failures)
        select coalesce(d.id, d.seq), d.attempt, d.created_at, d.priority, d.group_key, d.key, d.headers, d.payload, d.failures from d order by d.seq$sql$,
        segment, _q(q.name)) using upto;
    get diagnostics many = row_count;
    return many;
end $$;

-- _empty_segment truncates a retired segment if its lock is free. Its jobs came from a transaction
-- that had read the register before it moved, and took very long from there to its lock. They go to
-- the end of the queue.
create or replace function _empty_segment(q _queue, s _segment) returns void
language plpgsql volatile set search_path from current as $$ declare
    segment constant text := _q(format('_%s.%s', q.name, s.slot));
    ring    constant regclass := _q(format('_%s.ring', q.name))::regclass;
    here    constant bigint := pg_sequence_last_value(ring);
    began   constant timestamptz := clock_timestamp();
    late    int;
begin
    if s.again is null then -- who has a list from before this segment left it makes a new one: see {slots}
        perform setval(ring, here + 1024);
        update _segment x set turn = here / 1024 + 1 where x.queue = q.id and x.slot = here % 1024;
    end if;
    if _truncate(segment) then
        delete from _segment x where x.queue = q.id and x.slot = s.slot;
        return;
    end if;
    late := _to_the_end(q, segment);
    update _segment x set again = case when late = 0 then greatest(_lock_again(s.retired), _look_again(began)) end where x.queue = q.id and x.slot = s.slot;
end $$;

-- _carry_over moves jobs from a segment to the one that comes next in order, and returns how
-- many. They stay what they are, seq and xid included, so they come before the next one's own
-- and skip maps hold for them as before. The last ones go first: what stays is before them.
create or replace function _carry_over(from_segment text, to_segment text, to_slot int, most int) returns int
language plpgsql volatile set search_path from current as $$ declare many int;
begin
    execute format($sql$
        with d as (
            delete from %1$s t where t.ctid = any (array(select t.ctid from %1$s t order by t.seq desc limit %4$s for update skip locked)) returning t.*)
        insert into %2$s (xid, seq, created_at, id, attempt, priority, slot, group_key, key, headers, payload, failures)
        select d.xid, d.seq, d.created_at, d.id, d.attempt, d.priority, %3$s, d.group_key, d.key, d.headers, d.payload, d.failures from d$sql$,
        from_segment, to_segment, to_slot, most);
    get diagnostics many = row_count;
    return many;
end $$;

-- _leave retires a segment that is no longer written to, once its writers have ended and it holds no job. Where few segments are
-- free, and no job was taken from it since the last look, a few jobs are carried over to the next one. They are up to an eighth
-- of what it has held. Where none is free, and the current one grows by jobs that have been taken, it is up to as much as these
-- (garbage, in bytes). To the current one itself, which will have to do the same, it is half of that.
create or replace function _leave(q _queue, s _segment, scarce boolean, garbage bigint) returns void
language plpgsql volatile set search_path from current as $$ declare
    segment constant text := _q(format('_%s.%s', q.name, s.slot));
    began   timestamptz;
    job     tid;
    most    constant int := 10000;
    was     constant _segment := s;
    heir    record;
    jobs    int;
    bytes   bigint;
begin
    if s.writers is null then -- not when it was left behind: who had read the register then may have got his lock since
        s.writers := _writers_in(segment) || _writers_in(_q(q.name)); -- an INSERT locks the queue before it reads the register
        s.looked := clock_timestamp();
        update _segment x set writers = s.writers, looked = s.looked where x.queue = q.id and x.slot = s.slot;
    end if;
    -- One that has the queue's lock, but not the segment's, may be between the two, which takes moments. A transaction that stays open has
    -- the queue's lock for as long, wherever it has written: it delays this for ten seconds, no longer.
    if _still_in(segment, s.writers) or _not_yet(s.looked + interval '10 s') and _writers_in(_q(q.name)) && s.writers then
        return;
    end if;
    began := clock_timestamp();
    job := _job_in(segment, q.lifo, s.job);
    if job is null then
        update _segment x set retired = clock_timestamp(), again = null where x.queue = q.id and x.slot = s.slot;
        return;
    end if;
    if clock_timestamp() - began > interval '10 ms' then s.job := job; end if;
    select x.slot, x.turn = max(x.turn) over () as current into heir
      from _segment x where x.queue = q.id and x.turn > s.turn and x.retired is null order by x.turn limit 1;
    if scarce and not s.leaving then
        -- From the end from which none are taken, so that it steps over few dead entries.
        execute format('select count(*), coalesce(sum(octet_length(j.payload) + 200), 0) from (select t.payload from %s t order by t.xid %s limit %s) j',
                       segment, case when q.lifo then 'asc' else 'desc' end, greatest(most, garbage / 200) + 1) into jobs, bytes;
        s.leaving := bytes <= case when heir.current then garbage / 2 else garbage end
                  or jobs <= most and jobs = coalesce(s.rest, -1) and bytes <= least(8388608, pg_table_size(segment) / 8);
        s.rest := jobs;
    end if;
    if s.leaving then
        s.leaving := _carry_over(segment, _q(format('_%s.%s', q.name, heir.slot)), heir.slot, most) > 0; -- else another session holds the remaining jobs: others take their turn
        began := clock_timestamp();
    end if;
    s.again := _look_again(began);
    if s is distinct from was then
        update _segment x set rest = s.rest, leaving = s.leaving, job = s.job, again = s.again where x.queue = q.id and x.slot = s.slot;
    end if;
end $$;

-- _not_yet returns whether a time is in the future, but not so far that the clock must have been set back.
create or replace function _not_yet(at timestamptz) returns boolean
language sql volatile
return coalesce(clock_timestamp() between at - interval '1 hour' and at, false);

-- _look_again returns when to look again into a segment that still held jobs; null stands for at once. If the look took
-- over 10 ms, it had many dead rows to step over: then the pause is two hundred times as long, at most a minute.
create or replace function _look_again(began timestamptz) returns timestamptz
language sql volatile
return case when clock_timestamp() - began > interval '10 ms' then clock_timestamp() + least(200 * (clock_timestamp() - began), interval '1 min') end;

-- _in_trouble writes why the maintenance of a queue's segment, or of a ring of two, failed: to the server's log, and
-- where the status is read from. If the disk is full, that may fail as well.
create or replace function _in_trouble(queue _queue, in_slot int, ring text, error text, state text) returns void
language plpgsql volatile set search_path from current as $$ begin
    raise warning 'the maintenance of % failed: %', coalesce(ring, format('segment %s of queue %s', in_slot, queue.name)), error using errcode = state;
    if ring is null then
        update _segment s set trouble = error, again = clock_timestamp() + interval '5 s' where s.queue = (_in_trouble.queue).id and s.slot = in_slot;
    else
        update _pair p set trouble = error, again = clock_timestamp() + interval '5 s' where p.name = ring;
    end if;
exception when others then
    null;
end $$;

-- _maintain_ring empties the segments of a queue that jobs are not written to any more, and moves its pointer on when
-- the current one is full, or holds nothing. It is called about once a second, at the end of a short transaction. force
-- does not wait for the queue to be idle.
--
-- Each TRUNCATE rewrites catalogue rows, which a pinned snapshot keeps; so a queue in
-- use gives a segment back only when that is worth it.
create or replace function _maintain_ring(queue text, force boolean default false) returns void
language plpgsql volatile security definer set search_path from current
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set jit = off as $$ declare
    q         _queue;
    s         _segment;
    ring      regclass := _q(format('_%s.ring', queue))::regclass;
    current   int;
    segment   text; -- the current one
    next_slot int;
    bytes     bigint;
    -- For how many ms no job has been enqueued. The register seen holds three things, from the lowest bit on.
    -- The first is whether there are skip maps that could not bring their bound up to date (1). The second is the end of
    -- the sequence when this last looked (27). The third is since when it has been that, in tenths of a second. A bit
    -- that another session sets just now may be lost: a scan is longer then.
    idle      bigint;
    seen      constant bigint := _register(queue, 'seen');
    drawn     constant bigint := coalesce(_register(queue, 'seq'), 0) & 134217727;
    now       constant bigint := extract(epoch from clock_timestamp()) * 10;
    scarce    boolean;
    none_free boolean;
    strays    int[];
    garbage   bigint := 0;
    share     float8;
    leave     boolean;
    began     timestamptz;
    fresh     boolean;
    one       tid;
begin
    perform _read_committed();
    select * into q from _queue x where x.name = queue;
    if not pg_try_advisory_xact_lock('_queue'::regclass::oid::int, q.id) then return; end if;
    if seen >> 1 & 134217727 <> drawn or now < seen >> 28 then
        perform setval(_q(format('_%s.seen', queue)), (now << 28) | (drawn << 1) | (seen & 1));
        idle := 0;
    else
        idle := (now - (seen >> 28)) * 100;
    end if;
    current := (_ring_position(queue)).slot;
    segment := _q(format('_%s.%s', queue, current));
    bytes := pg_table_size(segment);
    fresh := not exists (select from _segment x where x.queue = q.id and x.slot = current and x.retired is null);
    select 2 * count(*) filter (where x.retired is null and (x.slot is not null or g.slot = current)) > count(*) and not coalesce(bool_or(x.leaving and x.retired is null), false),
           count(*) filter (where x.slot is not null or u.used) = count(*), array_agg(g.slot) filter (where x.slot is null and u.used)
      into scarce, none_free, strays
      from _segments(queue) g left join _segment x on x.queue = q.id and x.slot = g.slot cross join lateral (select g.slot = current or pg_relation_size(g.oid) > 0) u(used);
    if strays is not null then -- they have something and no row: the rotation was rolled back, or the writer was so late that the segment had become free meanwhile
        insert into _segment (queue, slot, turn, retired)
        select q.id, stray, pg_sequence_last_value(ring) / 1024, case when stray <> current then clock_timestamp() end from unnest(strays) stray;
    end if;
    if fresh then
        update _segment x set retired = null, writers = null, looked = null, rest = null, leaving = false, job = null, again = null, turn = pg_sequence_last_value(ring) / 1024
         where x.queue = q.id and x.slot = current and x.retired is not null;
    end if;
    if none_free and bytes >= q.segment_bytes then -- of jobs that have been taken, by a hundred pages
        share := least(819200.0 / greatest(pg_relation_size(segment), 1), 1);
        execute format('select coalesce(sum(80 + pg_column_size(t.payload) + coalesce(pg_column_size(t.key), 0)
                                            + coalesce(pg_column_size(t.headers), 0) + coalesce(pg_column_size(t.failures), 0)), 0)
                          from %s t tablesample system (%s)', segment, 100 * share) into garbage;
        garbage := bytes - garbage / share;
    end if;
    for s in select * from _segment x
              where x.queue = q.id and x.slot <> current
                and not _not_yet(x.again)
              order by x.turn loop
        begin -- what is wrong with one of them holds up neither the others nor the rest of the maintenance
            if s.retired is not null then
                perform _empty_segment(q, s);
            else
                perform _leave(q, s, scarce, case when garbage >= q.segment_bytes then garbage else 0 end);
            end if;
            if s.trouble is not null then
                update _segment x set trouble = null where x.queue = q.id and x.slot = s.slot;
            end if;
        exception when others then
            perform _in_trouble(q, s.slot, null, sqlerrm, sqlstate);
        end;
    end loop;
    leave := bytes >= q.segment_bytes and not fresh; -- others do not see yet that it is listed
    if not leave and not fresh and pg_relation_size(segment) > 0
       and (force or (bytes >= least(q.segment_bytes, 16777216) or idle >= case when bytes >= 1048576 then 1000 else 10000 end)
                     and not (select _not_yet(x.again) from _segment x where x.queue = q.id and x.slot = current)) then
        began := clock_timestamp();
        one := _job_in(segment, q.lifo, (select x.job from _segment x where x.queue = q.id and x.slot = current));
        leave := one is null; -- not full, but done with
        if not leave and clock_timestamp() - began > interval '10 ms' then
            update _segment x set job = one, again = _look_again(began) where x.queue = q.id and x.slot = current;
        end if;
    end if;
    if leave then
        select g.slot into next_slot
          from _segments(queue) g
         where not exists (select from _segment x where x.queue = q.id and x.slot = g.slot)
           and pg_relation_size(_q(format('_%s.%s', queue, g.slot))) = 0
         order by (g.slot < current), g.slot limit 1;
        if next_slot is not null then
            perform setval(ring, (pg_sequence_last_value(ring) / 1024 + 1) * 1024 + next_slot);
            insert into _segment (queue, slot, turn) values (q.id, next_slot, pg_sequence_last_value(ring) / 1024);
            segment := _q(format('_%s.%s', queue, next_slot)); -- a job may have come before it was listed, see _empty_segment: skip maps hide it
            perform _to_the_end(q, segment, (select max(m.base) from _skip_map m where m.queue = q.id)) where pg_relation_size(segment) > 0;
        end if;
    end if;
end $$;

-- _reclaim_skip_maps turns the ring of skip maps once the current segment is large. It copies the newest of each group
-- and priority to the other segment, a thousand with each call. The call after that moves the pointer, and the old
-- segment is truncated as soon as its lock is free. A skip map that is lost meanwhile costs a scan and nothing else: an
-- older one stays valid for ever. Where the newest ones alone are as large it does so once a minute.
create or replace function _reclaim_skip_maps() returns void
language plpgsql volatile set search_path from current set enable_hashjoin = off set enable_mergejoin = off as $$ declare
    p       _pair;
    turn    constant bigint := pg_sequence_last_value('_skip_map_slot');
    current constant int := turn % 2;
    here    constant text := _q('_skip_map_' || current);
    there   constant text := _q('_skip_map_' || (1 - current));
    last    _skip_map;
    many    int;
begin
    if not pg_try_advisory_xact_lock('_skip_map'::regclass::oid::int, 0) then return; end if;
    select * into p from _pair x where x.name = '_skip_map';
    if p.retired is not null then
        if _not_yet(p.again) then
            return;
        elsif _truncate(there, 'false') then
            update _pair x set retired = null, again = case when pg_relation_size(here) >= 4194304 then clock_timestamp() + interval '1 min' end where x.name = p.name;
        else
            update _pair x set again = _lock_again(p.retired) where x.name = p.name;
        end if;
        return;
    end if;
    execute format('select * from %s m where m.queue >= 0 order by m.queue desc, m.group_key desc, m.priority desc limit 1', there) into last; -- notes of keys are not copied
    if last.n is null and (pg_relation_size(here) < 4194304 or _not_yet(p.again)) then return; end if;
    execute format($sql$
        with recursive lane(queue, group_key, priority) as (
            select $1, $2 collate "C", $3
            union all
            select n.* from lane l cross join lateral (
                select m.queue, m.group_key, m.priority from %1$s m
                 where (m.queue, m.group_key, m.priority) > (l.queue, l.group_key, l.priority) and exists (select from _queue q where q.id = m.queue)
                 order by m.queue, m.group_key, m.priority limit 1) n)
        insert into %2$s (queue, n, base, seen, xid, turn, priority, group_key, lo, hi, pending, slots, slot)
        select l.queue, l.n, l.base, l.seen, l.xid, l.turn, l.priority, l.group_key, l.lo, l.hi, l.pending, l.slots, %3$s
          from (select * from lane offset 1 limit 1000) d
         cross join lateral (select * from %1$s m where m.queue = d.queue and m.group_key = d.group_key and m.priority = d.priority order by m.n desc limit 1) l$sql$,
        here, there, 1 - current) using coalesce(last.queue, -1), coalesce(last.group_key, ''), coalesce(last.priority, '0');
    get diagnostics many = row_count;
    if many < 1000 and (last.n is not null or many = 0) then
        perform setval('_skip_map_slot', turn + 1);
        update _pair x set retired = clock_timestamp() where x.name = p.name;
    end if;
end $$;
