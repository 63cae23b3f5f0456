-- Barriers: jobs wait until others have ended. A job holds at most one, and waits for some. Both are headers, so they go with the job wherever it goes.
--
-- What happens to a barrier is noted in _barrier, and nothing is updated. When the transaction commits, _turn_barriers sees to its notes. So locks last
-- for a commit. The rows of a barrier, by their part:
--
--   -1   a note: a change of running and dead
--   -17  a note: the barrier is sealed
--   0    how many jobs hold it and are not dead, and how many are dead: the row with the highest n, with all notes of a higher n
--   16   in running its stage: 0 made, 1 sealed, 2 open; the row with the highest n is true
--   17   a job that waits, or a message
--
-- A commit either counts, or leaves its notes as they are. It counts with the barrier's lock: it adds up what is noted, and writes a new count. If that
-- is zero and the barrier is sealed, it opens. So the last end sees all others, and opens the barrier, if no commit leaves a note by which the last job ends.
-- It leaves those of a barrier that has too many jobs for that. With a count of r, at least 256, each of these notes ends at most r / 256 jobs. Its n is
-- at most (r - 1) / (r / 256) above the count's. No two notes have the same n, so all of them together end at most r - 1, whatever rolls back. A commit
-- that leaves notes shares the barrier's lock with others that do, until it has committed. So who counts sees all notes that were left, and no other refers
-- to the count before: their n is below the new one's. A transaction that noted before a count, and commits after it, counts.
--
-- A transaction with notes of several barriers counts all of them, and takes the locks in one order. They are few, so that a transaction can have all.
--
-- While one of 10,000 jobs or more is watched, ends need no notes. A count that finds 10,000 chooses one that will run late, and writes a zero
-- before the number in its header. It counts as 2^40 more, wherever it goes. Until it has ended, no barrier opens, and a claim that ends all jobs of a
-- row need not note it. It shares the lock until it has committed, so who counts the end of the watched job waits for it. By then running is too high, and
-- the count looks for the jobs that have not ended. If these are many, it chooses another.
--
-- Which barrier's ends need no notes is in the register _barrier_watched: its number, with the register's oid in the upper bits, so that a dump's value
-- means nothing elsewhere. Who leaves a note sets it, with the lock shared, after a count of 2^40 or more that has committed. Who counts less
-- resets it before, with the lock alone. So if it is set, and the lock is had, there is such a count, whatever rolls back or is lost by a crash.
--
insert into _template (kind, name, body) select 'queue', 'barrier', $$

-- {barrier} makes a barrier, seals one, or notes that a new job holds it, see _barrier_call.
create or replace function {barrier}(barrier bigint, job bigint) returns bigint
language sql volatile security definer set search_path = pg_catalog, pg_temp as $fn$ select {schema}._barrier_call({id}, barrier, job) $fn$;

$$;

-- _barrier_call does the three things that enqueuers may do: without a number it makes a barrier, with a job that holds it, it counts that, otherwise it seals it.
create or replace function _barrier_call(queue int, barrier bigint, job bigint) returns bigint
language plpgsql volatile set search_path from current as $$
declare flags constant regclass := (select _q(format('_%s.flags', q.name))::regclass from _queue q where q.id = queue);
begin
    if barrier is null then
        perform _write_flags(flags, 68719476736), _await_others() where pg_sequence_last_value(flags) & 68719476736 = 0; -- {held}, see _fill; who reads the flag later counts
        insert into _barrier as b (barrier, queue, part, running) values (nextval('_barrier_n'), _barrier_call.queue, 16, 0) returning b.barrier into barrier;
    else
        perform _refuse_barrier(queue, barrier, job is not null);
        insert into _barrier (barrier, queue, part, running, dead) values (_barrier_call.barrier, _barrier_call.queue, case when job is null then -17 else -1 end, case when job is not null then 1 end, 0);
    end if;
    return barrier;
end $$;

-- _refuse_barrier raises an error if the queue has no such barrier, or if it is open and a job is to hold it.
create or replace function _refuse_barrier(queue int, barrier bigint, holding boolean) returns void
language plpgsql volatile set search_path from current set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
declare s constant _barrier := (select b from _barrier b where b.barrier = _refuse_barrier.barrier and b.part = 16 order by b.n desc limit 1);
begin
    if current_setting('transaction_isolation') not in ('read committed', 'read uncommitted') then
        raise exception 'a barrier needs the isolation level read committed, this transaction is %', current_setting('transaction_isolation') using errcode = '25001', hint = 'it does not see which jobs have ended since it began; begin it with: begin isolation level read committed';
    elsif s.queue <> _refuse_barrier.queue or s.queue is null and (barrier between 1 and pg_sequence_last_value('_barrier_n')) is not true then
        raise exception 'the queue has no barrier %', barrier using errcode = '23514', hint = 'a barrier belongs to one queue; make one with: select penstock.barrier(queue)';
    elsif holding and coalesce(s.running, 2) = 2 then -- its stage; one that is not there any more is open
        raise exception 'the barrier % is open', barrier using errcode = '23514', hint = 'seal it only after the last job that holds it, or add jobs from one that holds it and has not ended';
    end if;
end $$;

-- _barrier_state returns a barrier's stage and counts; counted is running as it was counted last. One that is not there any more is open. The notes of this transaction count if their n is at
-- least since.
create or replace function _barrier_state(in_barrier bigint, since bigint default null, out queue int, out stage int, out running bigint, out dead bigint, out counted bigint)
language plpgsql volatile set search_path from current as $$
begin
    select s.queue, coalesce(s.running, 2), coalesce(c.running, 0) + coalesce(x.running, 0), coalesce(c.dead, 0) + coalesce(x.dead, 0), c.running into queue, stage, running, dead, counted
      from (select) one left join lateral (select b.* from _barrier b where b.barrier = in_barrier and b.part = 16 order by b.n desc limit 1) s on true
      left join lateral (select b.* from _barrier b where b.barrier = in_barrier and b.part = 0 order by b.n desc limit 1) c on true
     cross join lateral (select sum(b.running) as running, sum(b.dead) as dead from _barrier b
                          where b.barrier = in_barrier and b.part = -1 and b.n > least(coalesce(c.n, 0), since - 1) and (b.n > c.n or c.n is null or b.xid = pg_current_xact_id_if_assigned())) x;
end $$;

-- _count_holders notes how jobs that hold barriers change these counts; jobs that hold none are left out. It returns true, to stand in a WHERE. The
-- caller may not have deleted all of them yet, or more: so one that is watched is counted later, even where constraints are immediate.
create or replace function _count_holders(queue int, headers jsonb[], running int, dead int) returns boolean
language plpgsql volatile set search_path from current set plan_cache_mode = force_generic_plan as $$
declare many int; watched text[];
begin
    with j as materialized (
        select min(j.holds) as holds, count(*) as n -- min, because each job would be matched otherwise
          from (select h ->> 'penstock-holds' from unnest(headers) h) j(holds) where j.holds is not null group by j.holds having min(j.holds) ~ '^0?[1-9][0-9]{0,17}$'),
    i as (
        insert into _barrier (barrier, queue, part, running, dead)
        select j.holds::bigint, _count_holders.queue, -1, j.n * _count_holders.running, j.n * _count_holders.dead from j where j.holds not like '0%')
    select count(*), array_agg(j.holds) filter (where j.holds like '0%') into many, watched from j;
    if watched is not null then
        set constraints turn deferred;
        insert into _barrier (barrier, queue, part, running, dead)
        select w::bigint, _count_holders.queue, -1, count(*) * _count_holders.running * 1099511627777, count(*) * _count_holders.dead from unnest(watched) w join unnest(headers) h on h ->> 'penstock-holds' = w group by w;
    end if;
    if many > 0 and current_setting('transaction_isolation') not in ('read committed', 'read uncommitted') then
        perform _refuse_barrier(queue, 0, false);
    end if;
    return true;
end $$;

-- _all_hold returns the headers of a row of several jobs: the barrier that each of them holds, or null. One that is watched is not like the others.
create or replace function _all_hold(barriers text[]) returns jsonb
language sql stable return case when array_remove(barriers, barriers[1]) = '{}' and barriers[1] not like '0%' then jsonb_build_object('penstock-holds', barriers[1]) end;

-- _count_ends is _count_holders for jobs of a claim of several that have ended, all or some of them.
create or replace function _count_ends(queue int, jobs _claimed[], ended bit default null) returns boolean
language plpgsql volatile set search_path from current as $$
begin
    return (select _count_holders(queue, array_agg(j.headers), -1, 0) from unnest(jobs) j where ended is null or get_bit(ended, (j.lease >> 1 & 255)::int) = 1);
end $$;

-- _count_all is _count_ends for the first n jobs of a row, which are those that had not ended: later ones may have. If the row has headers, all its
-- jobs hold that barrier, and the jobs are not read.
create or replace function _count_all(queue int, jobs _claimed[], headers jsonb, n int) returns boolean
language plpgsql volatile set search_path from current as $$
begin
    if headers is null then return _count_ends(queue, jobs, (~'0'::bit(256)) << 256 - n >> 1); end if;
    insert into _barrier (barrier, queue, part, running, dead) select h.holds::bigint, _count_all.queue, -1, - n, 0 from (select headers ->> 'penstock-holds') h(holds) where h.holds ~ '^[1-9][0-9]{0,17}$';
    if current_setting('transaction_isolation') not in ('read committed', 'read uncommitted') then perform _refuse_barrier(queue, 0, false); end if;
    return true;
end $$;

-- _watched returns the value that the register _barrier_watched has while ends of a barrier's jobs need no notes. Of such a value it returns the barrier.
create or replace function _watched(n bigint) returns bigint
language sql stable return n # ('_barrier_watched'::regclass::oid::bigint << 31);

do $$ begin execute replace($ddl$
-- _not_last returns whether jobs that hold a barrier end without a note, because one is watched that has not ended. If not, it gives the lock back.
-- It has its caller's settings, and no search_path: to set some costs as much as all else.
create or replace function _not_last(headers jsonb) returns boolean
language plpgsql volatile as $fn$
declare held constant bigint := headers operator(pg_catalog.->>) 'penstock-holds';
begin
    if {schema}._watched(held) = pg_sequence_last_value('{schema}._barrier_watched') and current_setting('transaction_isolation') in ('read committed', 'read uncommitted') then
        begin
            perform pg_advisory_xact_lock_shared(1885695586, hashint8(held) & 511);
            if {schema}._watched(held) = pg_sequence_last_value('{schema}._barrier_watched') then return true; end if;
            raise serialization_failure;
        exception when serialization_failure then null; -- it has ended
        end;
    end if;
    return false;
end $fn$ $ddl$, '{schema}', quote_ident(current_schema())); end $$;

-- _recount returns how many jobs hold a barrier. watched: one that was watched has ended, running is too high, and it looks for them. If they are many, and the
-- queue has not much more to read the next time, it chooses one of the last that claims come to. It waits for no row.
create or replace function _recount(in_queue int, in_barrier bigint, watched boolean, running bigint) returns bigint
language plpgsql volatile set search_path from current as $$
declare q constant _queue := (select q from _queue q where q.id = in_queue); got int;
begin
    if watched then
        perform setval('_barrier_watched', 0) where pg_sequence_last_value('_barrier_watched') = _watched(in_barrier);
        execute format($sql$
            select coalesce(sum(case when x.headers ->> 'penstock-holds' like '0%%' then 1099511627777 else 1 end), 0)
              from (select t.headers from %s t union all select s.headers from _scheduled s where s.queue = $1
                    union all select l.headers from _lease l where l.queue = $1 and l.jobs is null
                    union all select j.headers from _lease l cross join lateral unnest(l.jobs) j where l.queue = $1 and get_bit(l.done, (j.lease >> 1 & 255)::int) = 0) x
             where x.headers ->> 'penstock-holds' in ($2, '0' || $2)$sql$, _q(q.name)) into running using in_queue, in_barrier::text;
    end if;
    if running between 10000 and 1099511627775 and not q.lifo and _register(q.name, 'flags') & ~68719476736 = 65536 -- {plain}
       and (select sum(pg_relation_size(s.oid)) from _segments(q.name) s) + pg_relation_size('_scheduled_0') + pg_relation_size('_scheduled_1') <= running * 4096 then
        execute format($sql$
            with w as (
                select x.tableoid as leaf, x.seq from %1$s x
                 where x.group_key = '' and x.priority = 0 and x.key is null and x.seq > $1 - 1000 and x.headers ->> 'penstock-holds' = $2
                 order by x.seq desc limit 1 for update skip locked)
            update %1$s t set headers = t.headers || jsonb_build_object('penstock-holds', '0' || $2) from w
             where t.group_key = '' and t.priority = 0 and t.seq = w.seq and t.tableoid = w.leaf$sql$, _q(q.name)) using _register(q.name, 'seq'), in_barrier::text;
        get diagnostics got = row_count;
        running := running + got * 1099511627776;
    end if;
    return running;
end $$;

-- _put_off writes those of some new jobs to _scheduled that are delayed or wait for barriers, and returns which.
create or replace function _put_off(queue int, at timestamptz, ids bigint[], known boolean[], payloads bytea[], keys text[], group_keys text[], priorities int[], not_befores timestamptz[], headers jsonb[]) returns boolean[]
language plpgsql volatile set search_path from current as $$
declare made bigint[]; held jsonb[];
begin
    if exists (select from unnest(not_befores, headers) j(not_before, header) where j.not_before is not null and j.header ? 'penstock-waits-for') then
        raise exception 'not_before is given, and waits_for' using errcode = '22023', hint = 'leave one of them out: a job that waits for barriers runs once they are open';
    elsif 'infinity' = any (not_befores) then -- in _scheduled that means something else
        raise exception 'not_before is infinity' using errcode = '22023', hint = 'give a time, or do not enqueue the job yet';
    end if;
    with w as (
        insert into _scheduled (id, queue, attempt, due, created_at, priority, group_key, key, headers, payload)
        select j.id, _put_off.queue, case when j.header ->> 'penstock-unique-key' is null then 0 else -1 end, case when j.header ? 'penstock-waits-for' then '-infinity' else j.not_before end,
               at, coalesce(j.priority, 0), coalesce(j.group_key, ''), j.key, j.header - 'penstock-report', j.payload
          from unnest(ids, known, payloads, keys, group_keys, priorities, not_befores, headers) j(id, known, payload, key, group_key, priority, not_before, header)
         where not j.known and (j.not_before > at or j.header ? 'penstock-waits-for') returning _scheduled.*)
    select array_agg(w.id), array_agg(w.headers) into made, held from w;
    perform _refuse_barrier(queue, b.barrier, bool_or(b.holding)) from unnest(held) w(headers) cross join lateral (
        select (w.headers ->> 'penstock-holds')::bigint, true where w.headers ? 'penstock-holds' union select unnest(_waits_for(w.headers)), false) b(barrier, holding) group by b.barrier;
    perform _count_holders(queue, held, 1, 0);
    insert into _barrier (barrier, queue, part, running) select distinct b.barrier, _put_off.queue, 17, w.id from unnest(made, held) w(id, headers) cross join lateral unnest(_waits_for(w.headers)) b(barrier);
    return array(select coalesce(i = any (made), false) from unnest(ids) with ordinality u(i, o) order by u.o);
end $$;

-- _waits_for returns the barriers that a job waits for.
create or replace function _waits_for(headers jsonb) returns bigint[]
language sql immutable return string_to_array(headers ->> 'penstock-waits-for', ',')::bigint[];

-- _turn_barriers counts the notes of this transaction, when it commits. The first of its notes counts all; later ones find a newer count of the
-- transaction. One that makes constraints immediate counts at once, and keeps the locks. A note is left only if all later ones of the transaction can
-- be, because a count takes its locks in one order. If no number was drawn after a note's, there are none. In another cluster a restored row may have
-- the same xid, and a lower n. The count that it read before it had the lock may be old by then: a block that fails gives the lock back.
create or replace function _turn_barriers() returns trigger
language plpgsql volatile security definer set search_path from current set enable_seqscan = off set enable_bitmapscan = off set jit = off set plan_cache_mode = force_generic_plan as $$
declare
    c     _barrier; opens bigint[]; late bigint;
    most  bigint; upto bigint; few boolean; other bigint;
begin
    select x.* into c from _barrier x where x.barrier = new.barrier and x.part = 0 order by x.n desc limit 1;
    if c.xid = new.xid and c.n > new.n then
        return null;
    elsif c.running >= 256 and new.n > c.n and new.part = -1 then
        most := least(c.running / 256, 4294967296); -- not the end of one that is watched
        few := new.n <= c.n + (c.running - 1) / most and new.running >= - most and new.dead = 0;
        if few and pg_sequence_last_value('_barrier_n') is distinct from new.n then -- others may come after it
            few := (select max(t.n) <= c.n + (c.running - 1) / most and min(t.running) >= - most and count(*) < 65 and bool_and(t.barrier = new.barrier and t.part = -1 and t.dead = 0)
                      from (select x.* from _barrier x where x.xid = new.xid and x.n >= new.n order by x.n limit 65) t);
        end if;
        if few then
            begin
                perform pg_advisory_xact_lock_shared(1885695586, hashint8(new.barrier) & 511); -- "penb"
                if exists (select from _barrier x where x.barrier = new.barrier and x.part = 0 and x.n > c.n) then raise serialization_failure; end if;
                if c.running >= 1099511627776 and c.xid <> new.xid then -- the first one takes the register
                    other := _watched(pg_sequence_last_value('_barrier_watched'));
                    perform setval('_barrier_watched', _watched(new.barrier))
                      where other <> new.barrier and coalesce((select x.running from _barrier x where x.barrier = other and x.part = 0 order by x.n desc limit 1), 0) < 1099511627776;
                end if;
                return null;
            exception when serialization_failure then null; -- another has counted
            end;
        end if;
    end if;
    upto := (select x.n from _barrier x where x.xid = new.xid order by x.n desc limit 1);
    perform pg_advisory_xact_lock(1885695586, l.lock)
       from (select distinct hashint8(x.barrier) & 511 as lock from _barrier x where x.xid = new.xid and x.n between new.n and upto and (x.part < 0 or x.part = 17) order by 1) l;
    with noted as materialized (
        select x.barrier, x.queue, bool_or(x.part = -17) as seals, bool_or(x.dead > 0 or x.part = 17) as looks
          from _barrier x where x.xid = new.xid and x.n between new.n and upto and (x.part < 0 or x.part = 17) group by 1, 2),
    counted as materialized (
        select o.barrier, o.queue, o.looks, s.stage as was, r.running, s.dead, case when s.stage < 2 and (o.seals or s.stage = 1) then case when r.running <= 0 and s.dead <= 0 then 2 else 1 end else s.stage end as stage
          from noted o cross join lateral _barrier_state(o.barrier, new.n) s
         cross join lateral (select case when s.running < 1099511627776 and (s.counted >= 1099511627776 or s.running >= 10000) then _recount(o.queue, o.barrier, s.counted >= 1099511627776, s.running) else s.running end) r(running)),
    written as (
        insert into _barrier (barrier, queue, part, running, dead)
        select t.barrier, t.queue, 0, t.running, t.dead from counted t union all select t.barrier, t.queue, 16, t.stage, 0 from counted t where t.stage <> t.was)
    select array_agg(t.barrier order by t.barrier) filter (where t.stage > 0 and t.running <= 0 or t.looks and t.dead > 0), count(_refuse_barrier(t.queue, t.barrier, true)) filter (where t.was = 2 and t.running > 0) into opens, late from counted t;
    perform _let_go(x) from unnest(opens) x;
    return null;
end $$;

-- _let_go looks at the jobs that wait for a barrier, whose lock the caller has. Those whose barriers are all open go to the ring, in the order of
-- their ids, and messages to their outboxes. For one with on_dead run a barrier whose other jobs are dead is open; one with on_dead cancel dies as well. A job that waits for
-- several is looked at by one transaction at a time, so that the one that opens the last barrier sees the others. It runs with its caller's settings.
create or replace function _let_go(in_barrier bigint) returns void
language plpgsql volatile set search_path from current as $$
declare
    waits constant jsonb[] := array(select s.headers from _barrier k join _scheduled s on s.queue = k.queue and s.id = k.running and s.due = '-infinity' where k.barrier = in_barrier and k.part = 17);
    q    _queue; turn constant bigint := pg_sequence_last_value('_scheduled_slot'); leaf int;
    jobs bigint[]; dies bigint[]; held jsonb[]; keys text[]; messages bigint[];
begin
    if waits = '{}' then return; end if;
    select x.* into q from _queue x where x.id = (select w.queue from _barrier w where w.barrier = in_barrier and w.part = 17 limit 1);
    perform pg_advisory_xact_lock(1885695586, 512 + (q.id & 511)) where exists (select from unnest(waits) w where cardinality(_waits_for(w)) > 1);
    with b as materialized (select x.barrier, t.* from (select distinct unnest(_waits_for(w)) as barrier from unnest(waits) w) x cross join lateral _barrier_state(x.barrier) t),
    v as (
        select s.id, s.priority, bool_and(b.stage = 2 or s.headers @> '{"penstock-on-dead": "run"}' and b.stage = 1 and b.running <= 0) as goes, bool_or(s.headers ->> 'penstock-on-dead' = 'cancel' and b.dead > 0) as dies
          from _barrier k join _scheduled s on s.queue = k.queue and s.id = k.running and s.due = '-infinity' left join b on b.barrier = any (_waits_for(s.headers))
         where k.barrier = in_barrier and k.part = 17 group by s.id, s.priority)
    select array_agg(v.id) filter (where v.goes and v.priority < 16), array_agg(v.id) filter (where v.dies and v.goes is not true), array_agg(v.id order by v.id) filter (where v.goes and v.priority = 16) into jobs, dies, messages from v;
    foreach leaf in array _listed('_scheduled_slot') loop -- the older first: a job may move meanwhile
        execute format($sql$
            with d as (delete from _scheduled_%s l where l.queue = $1 and (l.id = any ($2) or l.id = any ($3)) and l.due = '-infinity' returning l.*),
            w as (select d.*, greatest(d.attempt, 0) as tries, nullif(d.headers - '{penstock-waits-for,penstock-on-dead}'::text[], '{}') as rest, d.id = any ($3) is true as dies from d),
            i as (
                insert into %s (id, attempt, created_at, priority, group_key, key, headers, payload, failures)
                select w.id, w.tries, w.created_at, w.priority, w.group_key, w.key, w.rest, w.payload, w.failures from w where not w.dies order by w.id),
            j as (
                insert into _dead_job (queue, id, attempt, created_at, priority, group_key, key, headers, payload, failures)
                select w.queue, w.id, w.tries, w.created_at, w.priority, w.group_key, w.key, w.rest, w.payload, _failed(w.failures, w.tries, $4) from w where w.dies)
            select array_agg(w.headers), array_agg(w.key) filter (where w.key is not null) from w where w.dies$sql$, leaf, _q(q.name))
           into held, keys using q.id, jobs, dies, format('cancelled: a job that holds barrier %s is dead', in_barrier);
        perform _count_holders(q.id, held, -1, 1), _promote(q.id, coalesce(keys, '{}')) where held is not null;
        if messages is not null then
            execute format('select from _scheduled_%s l where l.queue = $1 and l.id = any ($2) and l.due = ''-infinity'' for update', leaf) using q.id, messages; -- so they do not move
        end if;
    end loop;
    perform _publish_rows(q.id, messages, '_scheduled') where messages is not null;
    perform _let_go(in_barrier) where turn <> pg_sequence_last_value('_scheduled_slot'); -- the ring may have turned meanwhile
end $$;
