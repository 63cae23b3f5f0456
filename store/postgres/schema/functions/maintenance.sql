-- Maintenance: work that becomes due in a queue's jobs, and its storage.

-- _maintain does a queue's maintenance: leases that ended, jobs that are due, schedules, storage. It tries the lock
-- (_queue, id) and keeps it until the commit, so that one session does it at a time; after a second it continues without.
-- Nothing needs that lock, because each step skips rows that others have locked. The register holds when it ended last,
-- in ms. It reads what was due since a little before that and, every five seconds, all, for rows that committed late.
--
-- Mostly one statement for each kind shows that nothing is due: those that would move it cost ten times as much.
create or replace function _maintain(queue int, first boolean default false) returns void
language plpgsql volatile set search_path from current
set enable_seqscan = off set enable_bitmapscan = off set jit = off set plan_cache_mode = force_generic_plan as $$ declare
    q      constant _queue := (select q from _queue q where q.id = queue);
    done   constant regclass := _q(format('_%s.maintained', q.name));
    last   constant bigint := pg_sequence_last_value(done);
    flags  constant bigint := pg_sequence_last_value(_q(format('_%s.flags', q.name))::regclass);
    upto   constant timestamptz := clock_timestamp(); -- a variable, because a volatile function cannot bound an index scan
    now_ms constant bigint := date_part('epoch'::text, upto) * '1000';
    since  constant timestamptz := case when now_ms / 5000 = last / 5000 then to_timestamp(last::float8 / '1000') - interval '2 s' else '-infinity' end;
    s      _schedule;
    more   boolean := false;
begin
    if not first and now_ms - last between 0 and 249 then
        return; -- another transaction that found it due was faster
    end if;
    if not pg_try_advisory_xact_lock('_queue'::regclass::oid::int, queue) and abs(now_ms - last) < 1000 then
        return; -- else it may be a long transaction that did; nothing here needs the lock
    end if;
    if first then -- in its transaction
        perform _refresh(q);
    end if;
    perform setval(done, now_ms);
    if (flags & 25769803776 <> 0 or q.paused or q.max_running is not null or q.rate is not null or pg_relation_size('_group') > 0) -- watched, see _queue_flags
       and current_setting('transaction_isolation') = 'read committed' then
        if _is_watched(q) <> (flags & 25769803776 <> 0) then perform _watch(queue, true); end if;
        if now_ms / 1000 <> last / 1000 and exists (select from _group g where g.queue = _maintain.queue and g.max_running is not null) then
            perform _list_leases(queue);
        end if;
    end if;

    -- A statement opens all that it names, with its indexes: for what is empty none is made.
    if pg_relation_size('_lease_0') > 0 or pg_relation_size('_lease_1') > 0 then
        if exists (select from _lease l where l.queue = _maintain.queue and l.lease_until > since and l.lease_until <= upto) then
            more := _expire(q, since, upto);
            perform setval(done, (date_part('epoch'::text, clock_timestamp()) * '1000')::bigint);
        end if;
    end if;
    if pg_relation_size('_scheduled_0') > 0 or pg_relation_size('_scheduled_1') > 0 then
        if exists (select from _scheduled l where l.queue = _maintain.queue and l.due > since and l.due <= upto) then
            more := _wake(q, since, upto) or more;
            perform setval(done, (date_part('epoch'::text, clock_timestamp()) * '1000')::bigint);
        end if;
        if exists (select from _scheduled l where l.queue = -_maintain.queue and l.due > since and l.due <= upto) then
            more := _look_at_keys(q, since, upto) or more;
            perform setval(done, (date_part('epoch'::text, clock_timestamp()) * '1000')::bigint);
        end if;
    end if;
    if last - now_ms > 10800000 then -- as cron does: a clock that is set back further than that was wrong before
        update _schedule x set next = _cron_next(x.cron, upto) where x.queue = _maintain.queue;
    end if;
    if pg_relation_size('_schedule') > 0 then -- whose dedup_key or unique_key, or the job that it replaces, a transaction has that has not ended comes with a later call
        for s in select * from _schedule x where x.queue = _maintain.queue and x.next <= upto and not x.paused for update skip locked loop
            continue when (s.dedup_key is not null or s.headers ? 'penstock-unique-key') and not _hold_keys(queue, array[s.dedup_key, s.headers ->> 'penstock-unique-key'], false);
            continue when s.headers ->> 'penstock-on-conflict' <> 'ignore' and not pg_try_advisory_xact_lock(hashtextextended(s.headers ->> 'penstock-unique-key', queue));
            if not (s.skip_overlap and _overlaps(q.name, s)) then perform _run_schedule(q.name, s); end if;
            update _schedule x set next = _cron_next(s.cron, upto) where x.queue = _maintain.queue and x.name = s.name; -- upto: the clock may be set back meanwhile
        end loop;
    end if;

    if now_ms / 1000 <> last / 1000 and (first or now_ms - last between 0 and 2000 or random() < '0.25') then -- one call now and then need not pay for it each time
        begin
            perform _maintain_storage(q);
        exception when others then -- leases and due jobs do not wait until that is fixed
            raise warning 'the maintenance of the storage of queue % failed: %', q.name, sqlerrm using errcode = sqlstate;
        end;
    end if;
    perform setval(done, case when more then 0 else (date_part('epoch'::text, clock_timestamp()) * '1000')::bigint end); -- 0: the next one looks at all, at once
end $$;

-- _expire moves the jobs whose lease has ended back to the ring or, after their last attempt, to _dead_job. It returns
-- whether there may be more. It locks 500 leases at a time and skips those that others have locked, so that a job which
-- is just acked is not moved. The keys of these jobs come then (_promote), whose locks are only tried. It begins no
-- further 500 after 200 ms, because a caller's lease runs meanwhile.
create or replace function _expire(queue _queue, since timestamptz, upto timestamptz) returns boolean
language plpgsql volatile set search_path from current as $$ declare got int; keys text[];
begin
    for round in 1 .. 20 loop
        execute format($sql$
            with x as materialized (
                select x.lease, x.lease_until, coalesce(256 - bit_count(x.done), 1) as jobs from _lease x
                 where x.queue = $1 and x.lease_until > $2 and x.lease_until <= $3
                 order by x.lease_until limit 500 for update skip locked),
            e as (
                delete from _lease l
                 where l.queue + 0 = $1 and l.lease = any (array( -- as many rows as make 500 jobs
                    select y.lease from (select x.*, sum(x.jobs) over (order by x.lease_until, x.lease) as upto from x) y where y.upto - y.jobs < 500))
                returning l.*),
            noted as materialized (
                select e.lease_until, coalesce(j.id, e.id) as id, coalesce(j.attempt, e.attempt) as attempt, coalesce(j.created_at, e.created_at) as created_at, e.priority, e.group_key, e.key,
                       case when e.report is null then coalesce(j.headers, e.headers) else _with_report(e.headers, e.report) end as headers, coalesce(j.payload, e.payload) as payload,
                       _failed(coalesce(j.failures, e.failures), coalesce(j.attempt, e.attempt), 'lease expired' || case e.worker when '' then '' else ', held by ' || e.worker end) as history
                  from e left join lateral (select j.* from unnest(e.jobs) j where get_bit(e.done, (j.lease >> 1 & 255)::int) = 0) j on true),
            again as (
                insert into %s (id, attempt, created_at, priority, group_key, key, headers, payload, failures)
                select f.id, f.attempt, f.created_at, f.priority, f.group_key, f.key, f.headers, f.payload, f.history from noted f where f.attempt < _max_attempts(f.headers, $4)),
            dead as (
                insert into _dead_job (queue, id, attempt, created_at, priority, group_key, key, headers, payload, failures)
                select $1, f.id, f.attempt, f.created_at, f.priority, f.group_key, f.key, f.headers, f.payload, f.history from noted f where f.attempt >= _max_attempts(f.headers, $4)
                returning _dead_job.headers),
            held as (select _count_holders($1, array_agg(d.headers), -1, 1) from dead d)
            select count(*), array_agg(distinct f.key) filter (where f.key is not null), max(f.lease_until) - interval '1 microsecond' from noted f cross join held$sql$, _q(queue.name))
           into got, keys, since using queue.id, since, upto, queue.max_attempts; -- the next round reads none of these again
        if keys is not null then perform _promote(queue.id, keys); end if;
        if got < 500 then return false; end if;
        exit when clock_timestamp() > upto + interval '200 ms';
    end loop;
    return true;
end $$;

-- _wake moves the jobs that have become due to the ring, and returns whether there may be more. It locks 500 rows at a time,
-- in the order of (due, id), and skips those that others have locked. The next 500 are read from behind the last one, so
-- that it does not read again what it has deleted.
create or replace function _wake(queue _queue, since timestamptz, upto timestamptz) returns boolean
language plpgsql volatile set search_path from current set enable_mergejoin = off as $$ declare
    ids  bigint[];
    dues timestamptz[];
    last bigint := 9223372036854775807; -- the round before has read up to here, and since
begin
    for round in 1 .. 20 loop
        select array_agg(x.id), array_agg(x.due) into ids, dues
          from (select l.id, l.due from _scheduled l
                 where l.queue = (_wake.queue).id and (l.due, l.id) > (since, last) and l.due <= upto
                 order by l.due, l.id limit 500 for update skip locked) x;
        if ids is null then return false; end if;
        execute format($sql$
            with d as (
                delete from _scheduled l using unnest($2, $3) u(id, due)
                 where l.queue = $1 and l.due = u.due and l.id = u.id
                returning l.*)
            insert into %s (id, attempt, created_at, priority, group_key, key, headers, payload, failures)
            select d.id, greatest(d.attempt, 0), d.created_at, d.priority, d.group_key, d.key, d.headers, d.payload, d.failures from d order by d.due, d.id$sql$, _q(queue.name))
          using queue.id, ids, dues;
        if cardinality(ids) < 500 then return false; end if;
        since := dues[500];
        last := ids[500];
        exit when clock_timestamp() > upto + interval '200 ms';
    end loop;
    return true;
end $$;

-- _look_at_keys looks at keys whose lock another transaction had when _promote came, and returns whether there may be more.
-- Such a key is a row with the queue's negative id. It locks these rows, skips those that others have locked, deletes
-- them and calls _promote, which writes them anew for a key that is still locked.
create or replace function _look_at_keys(queue _queue, since timestamptz, upto timestamptz) returns boolean
language plpgsql volatile set search_path from current as $$ declare ids bigint[]; dues timestamptz[]; keys text[];
begin
    select array_agg(x.id), array_agg(x.due), array_agg(distinct x.key) into ids, dues, keys
      from (select l.id, l.due, l.key from _scheduled l
             where l.queue = -(_look_at_keys.queue).id and l.due > since and l.due <= upto
             order by l.due limit 200 for update skip locked) x;
    if ids is null then return false; end if;
    delete from _scheduled l using unnest(ids, dues) u(id, due) where l.queue = -(_look_at_keys.queue).id and l.due = u.due and l.id = u.id;
    perform _promote(queue.id, keys);
    return cardinality(ids) = 200;
end $$;

-- _refresh brings the skip maps up to date that transactions could not, because they had an xid before they looked. It
-- also moves on the skip map that the fast path has left behind: else the next scan would step over the rows that the
-- fast path took. It must come first in a transaction. Those that were written last are at the table's end; of many
-- groups it takes a hundred.
create or replace function _refresh(q _queue) returns void
language plpgsql volatile set search_path from current as $$ declare
    seen  constant regclass := _q(format('_%s.seen', q.name));
    late  constant boolean := pg_sequence_last_value(seen) & 1 <> 0;
    leaf  constant int := pg_sequence_last_value('_skip_map_slot') % 2;
    seq   bigint;
    lane  record;
begin
    if not late and (q.lifo or pg_sequence_last_value(_q(format('_%s.next', q.name))::regclass) - coalesce((_newest_skip_map(q.id, '', 0::smallint)).lo[1], 0) <= 1024)
       or pg_current_xact_id_if_assigned() is not null then
        return;
    end if;
    seq := coalesce(pg_sequence_last_value(_q(format('_%s.seq', q.name))::regclass), 0);
    perform pg_current_xact_id(); -- draws it
    if late then perform setval(seen, pg_sequence_last_value(seen) & ~1::bigint); end if;
    for lane in execute format($sql$
        select m.group_key, m.priority
          from (select * from _skip_map_%1$s m where m.ctid >= '(%2$s,0)' and m.queue = $1 order by m.n desc limit 100) m
         where $2 union select '', 0::smallint$sql$, leaf, greatest(pg_relation_size('_skip_map_' || leaf) / current_setting('block_size')::int - 8, 0)) using q.id, late
    loop
        execute format('select %s($1, $2, $3)', _q(format('_%s.skip_map', q.name))) using lane.group_key, lane.priority, seq;
    end loop;
end $$;

-- _maintain_storage gives space back, about once a second and in every fourth of calls that come alone.
create or replace function _maintain_storage(q _queue) returns void
language plpgsql volatile set search_path from current as $$ begin
    if current_setting('transaction_isolation') = 'read committed' then perform _maintain_ring(q.name); end if;
    perform _reclaim_pairs();
    if q.done_since is not null then perform _turn_history(q); end if;
    if _samples_due() then
        begin
            perform _take_samples();
        exception when others then
            raise warning 'no samples were taken: %', sqlerrm using errcode = sqlstate;
        end;
    end if;
end $$;

-- _maintain_at_commit is the deferred trigger that does a queue's maintenance when a transaction commits. So its locks
-- last for a commit, and an error of it is a warning. It does nothing at PREPARE TRANSACTION, nor where constraints are
-- set immediate: locks would then last until the transaction ends. The client's statement asks for that, and that the only
-- function around it is one that commits. The claim's leases last longer by the time that it took.
create or replace function _maintain_at_commit() returns trigger
language plpgsql volatile security definer set search_path from current as $$ declare
    around text;
    now    constant float8 := extract(epoch from clock_timestamp());
    began  constant timestamptz := to_timestamp(coalesce(nullif(current_setting('penstock.maintaining', true), '')::float8, now)); -- in this transaction
begin
    get diagnostics around = pg_context;
    around := split_part(around, e'\n', 2);
    if exists (select from _queue q where q.id = new.queue) and (around = '' or around like '%COMMIT')
       and ((current_query() ilike '%prepare%' or current_query() ilike '%constraints%') -- cheaper than to make a regular expression
            and current_query() ~* $re$\mprepare\M.*\mtransaction\M|\mset\M.*\mconstraints\M$re$) is not true then
        perform set_config('penstock.maintaining', extract(epoch from began)::text, true);
        begin
            perform _maintain(new.queue);
        exception when others then
            raise warning 'the maintenance of a queue failed: %', sqlerrm;
        end;
        if new.until is not null and clock_timestamp() - began > interval '10 ms' then -- also others that end in the same microsecond
            update _lease l set lease_until = l.lease_until + (clock_timestamp() - began) where l.queue = new.queue and l.lease_until = new.until;
        end if;
    end if;
    delete from _maintenance t where t.slot = new.slot and t.ctid = new.ctid; -- the row never moves, and there is no index
    return null;
end $$;

-- _write_flags raises flags in a queue's register and lowers others, under a lock. The error gives the lock back, which
-- else only the end of the transaction would do; a session's lock would stay if the statement was cancelled. The
-- register keeps its value.
create or replace function _write_flags(flags regclass, raised bigint, lowered bigint default 0) returns void
language plpgsql volatile set search_path from current as $$ begin
    perform pg_advisory_xact_lock(1885695597, flags::oid::int); -- "penm"
    perform setval(flags, pg_sequence_last_value(flags) & ~lowered | raised);
    raise exception sqlstate 'PS002';
exception when sqlstate 'PS002' then
    null;
end $$;

-- _watch raises the flag {watched} if operators have paused or limited the queue or groups of it, before that commits. Maintenance may
-- lower it once nothing is set, and then deletes what was noted of groups, but for lists that hold a lease. The flag only means that a
-- call that takes jobs has to look at the queue's row, as its snapshot shows it. The flag is not lowered while an operator sets
-- something, because the operator has the row locked. If there is no row then, the queue was dropped since the operator's call began.
create or replace function _watch(queue int, lowering boolean default false) returns void
language plpgsql volatile set search_path from current as $$ declare
    watched constant bigint := 25769803776; -- see _queue_flags
    q       _queue;
    flags   regclass;
begin
    select * into q from _queue x where x.id = _watch.queue for no key update skip locked;
    if not found and lowering then
        return;
    elsif not found then
        raise exception 'the queue was dropped meanwhile' using errcode = '42P01', hint = 'create it again with: penstock queue create NAME';
    end if;
    flags := _q(format('_%s.flags', q.name));
    if not _is_watched(q) and lowering then
        delete from _group_state s where s.queue in (q.id, -q.id) and not exists (select from _lease l where l.lease = any (s.leases));
        perform _write_flags(flags, 0, watched);
    elsif pg_sequence_last_value(flags) & watched <> watched and _is_watched(q) then
        perform _write_flags(flags, watched);
    end if;
end $$;

-- _await_others waits until the transactions that are open now have ended, up to 0.2 s: they may have read the flag before it was raised.
create or replace function _await_others() returns void
language plpgsql volatile set search_path from current as $$
declare others constant text[] := array(select l.virtualtransaction from pg_locks l where l.locktype = 'virtualxid' and l.granted and l.pid <> pg_backend_pid());
begin
    for round in 1 .. 20 loop
        exit when not exists (select from pg_locks l where l.locktype = 'virtualxid' and l.virtualtransaction = any (others));
        perform pg_sleep(0.01);
    end loop;
end $$;

create or replace function advance_queue(name text, by interval) returns void
language plpgsql volatile set search_path from current as $$ declare
    q   constant int := (select x.id from _queue x where x.name = advance_queue.name);
    now constant timestamptz := clock_timestamp();
begin
    if q is not null then
        update _lease l set lease_until = greatest(l.lease_until - by, now) where l.queue = q and l.lease_until < 'infinity';
        update _scheduled d set due = greatest(d.due - by, now) where d.queue = q and isfinite(d.due);
        update _schedule s set next = s.next - by where s.queue = q;
        update _group_state s set next_at = s.next_at - by, held_until = s.held_until - by where s.queue in (q, -q);
        if (select x.done_since is not null from _queue x where x.id = q) then
            update _queue x set done_since = array(select s - by from unnest(x.done_since) with ordinality u(s, i) order by u.i) where x.id = q;
            perform setval(turn, pg_sequence_last_value(turn) - 8 * (extract(epoch from by) * 1000)::bigint) from (select _q(format('_%s.done_turn', name))::regclass) t(turn);
        end if;
        perform setval(_q(format('_%s.maintained', name))::regclass, 0);
    end if;
    perform maintain_queue(name);
end $$;

comment on function advance_queue is 'For tests: a queue believes that this much time has passed. Jobs that wait until then are due, leases that end until then have ended, and schedules run. The server''s clock and dedup windows stay. Only the owner of the schema may call it. Error: 42P01.';
