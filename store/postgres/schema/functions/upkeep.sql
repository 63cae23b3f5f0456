-- Upkeep: what time demands of a queue's jobs, and its storage.

-- _upkeep_functions is the text of the tick and of what it is made of.
create or replace function _upkeep_functions() returns text
language sql immutable set search_path from current as $text$ select $$

-- {tick} does what time demands. One process does it at a time; the register holds
-- when it was done last, in ms. since is a little before: what ended earlier has been
-- moved, except for what committed late, so every few seconds it looks at all.
--
-- Mostly there is nothing to do, and one statement says so: those that would do it cost
-- ten times as much, with nothing in them.
create or replace function {tick}(first boolean default false) returns void
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set jit = off set plan_cache_mode = force_generic_plan as $fn$
declare
    last   constant bigint := pg_sequence_last_value({tick_register});
    upto   constant timestamptz := clock_timestamp(); -- a variable, because a volatile function is no bound of an index scan
    now_ms constant bigint := date_part('epoch', upto) * 1000;
    since  constant timestamptz := case when now_ms / 5000 = last / 5000 then to_timestamp(last / 1000.0) - interval '2 s' else '-infinity' end;
    due    record;
    k      text;
    more   boolean := false;
begin
    if not first and now_ms - last between 0 and 249 then
        return; -- another transaction that found it due was faster
    end if;
    if not pg_try_advisory_xact_lock({queue_table}::oid::int, {id}) and abs(now_ms - last) < 1000 then
        return; -- else it may be a long transaction that ticked; nothing here needs the lock
    end if;
    if first then -- in its transaction
        perform {refresh}();
    end if;
    perform setval({tick_register}, now_ms);

    select exists (select from {schema}._lease l where l.queue = {id} and l.lease_until > since and l.lease_until <= upto) as leases,
           exists (select from {schema}._later l where l.queue = {id} and l.due > since and l.due <= upto) as jobs,
           exists (select from {schema}._schedule s where s.queue = {id} and s.next <= upto) as schedules
      into due;
    if due.leases then
        more := {expire}(since, upto);
    end if;
    if due.jobs then
        more := {wake}(since, upto) or more;
    end if;
    if last - now_ms > 10800000 then -- as cron does: a clock that is set back further than that was wrong before
        perform {schema}._next_run(s.queue, s.name) from {schema}._schedule s where s.queue = {id};
    end if;
    if due.schedules then -- whose dedup_key a transaction has that has not ended comes with a later tick
        perform {enqueue}(s.payload, s.key, s.grp, s.priority, null, s.dedup_key, s.headers), {schema}._next_run(s.queue, s.name)
           from (select * from {schema}._schedule s where s.queue = {id} and s.next <= upto for update skip locked) s
          where s.dedup_key is null or {schema}._hold_keys({id}, array[s.dedup_key], false);
    end if;

    if pg_sequence_last_value({flags}) & 4294967296 <> 0 then -- keys of which nothing runs and something waits
        for k in
            with recursive w(key) as (
                (select l.key from {schema}._later l where l.queue = {id} and l.key is not null order by l.key limit 1)
                union all
                select (select l.key from {schema}._later l where l.queue = {id} and l.key > w.key order by l.key limit 1) from w where w.key is not null)
            select w.key from w
             where w.key is not null
               and (select l.lease from {schema}._lease l where l.queue = {id} and l.key = w.key limit 1) is null -- a probe each, no join
               and (select l.due from {schema}._later l where l.queue = {id} and l.key = w.key and (l.attempt > 0 or l.due = 'infinity') order by l.id limit 1) = 'infinity'
        loop
            perform {promote}(array[k]);
        end loop;
    end if;

    if more then -- the next one looks at all, at once
        perform setval({tick_register}, 0);
    end if;
    if now_ms / 1000 <> last / 1000 then
        begin
            perform {tidy}(now_ms);
        exception when others then -- leases and due jobs do not wait until that is mended
            raise warning 'the upkeep of the storage of queue % failed: %', {name}, sqlerrm using errcode = sqlstate;
        end;
    end if;
end $fn$;

-- {expire} moves the jobs whose lease has ended, and says whether there may be more.
create or replace function {expire}(since timestamptz, upto timestamptz) returns boolean
language plpgsql volatile as $fn$
declare
    most constant int := (select q.max_attempts from {schema}._queue q where q.id = {id});
    got  int;
    keys text[];
begin
    for round in 1 .. 20 loop
        with e as (
            delete from {schema}._lease l
             where l.queue + 0 = {id} and l.lease = any (array(
                select x.lease from {schema}._lease x
                 where x.queue = {id} and x.lease_until > since and x.lease_until <= upto
                 order by x.lease_until limit 500 for update skip locked))
            returning l.*),
        noted as materialized (
            select e.*, {schema}._failed(e.failures, e.attempt, 'lease expired' || case e.worker when '' then '' else ', held by ' || e.worker end) as history from e),
        again as (
            insert into {queue} (id, attempt, created_at, priority, grp, key, headers, payload, failures)
            select f.id, f.attempt, f.created_at, f.priority, f.grp, f.key, f.headers, f.payload, f.history from noted f where f.attempt < most),
        dead as (
            insert into {schema}._dead_job (queue, id, attempt, created_at, priority, grp, key, headers, payload, failures)
            select {id}, f.id, f.attempt, f.created_at, f.priority, f.grp, f.key, f.headers, f.payload, f.history from noted f where f.attempt >= most)
        select count(*), array_agg(distinct f.key) filter (where f.key is not null and f.attempt >= most) into got, keys from noted f;
        if keys is not null then
            perform {promote}(keys);
        end if;
        if got < 500 then
            return false;
        end if;
    end loop;
    return true;
end $fn$;

-- {wake} moves the jobs that have become due to the ring, and says whether there may be more.
create or replace function {wake}(since timestamptz, upto timestamptz) returns boolean
language plpgsql volatile as $fn$
declare
    ids  bigint[];
    dues timestamptz[];
begin
    for round in 1 .. 20 loop
        select array_agg(x.id), array_agg(x.due) into ids, dues
          from (select l.id, l.due from {schema}._later l
                 where l.queue = {id} and l.due > since and l.due <= upto
                 order by l.due limit 500 for update skip locked) x;
        if ids is null then
            return false;
        end if;
        with d as (
            delete from {schema}._later l using unnest(ids, dues) u(id, due)
             where l.queue = {id} and l.due = u.due and l.id = u.id
            returning l.*)
        insert into {queue} (id, attempt, created_at, priority, grp, key, headers, payload, failures)
        select d.id, d.attempt, d.created_at, d.priority, d.grp, d.key, d.headers, d.payload, d.failures from d order by d.due, d.id;
        if cardinality(ids) < 500 then
            return false;
        end if;
    end loop;
    return true;
end $fn$;

-- {refresh} makes the marks that transactions could not bring up to date because they
-- had an xid before they looked, and moves on the one that the short way has left behind:
-- whoever goes by it next would step over what it took. It has to be the first of a
-- transaction.
create or replace function {refresh}() returns void
language plpgsql volatile as $fn$
declare
    stale constant boolean := pg_sequence_last_value({stale}) <> 0;
    low   bigint;
    seq   bigint;
    lane  record;
begin
    if not stale then
        if pg_sequence_last_value({mark_slot}) = 0 then
            low := (select k.lo[1] from {schema}._mark_0 k where k.queue = {id} and k.grp = '' and k.priority = 0 order by k.n desc limit 1);
        else
            low := (select k.lo[1] from {schema}._mark_1 k where k.queue = {id} and k.grp = '' and k.priority = 0 order by k.n desc limit 1);
        end if;
        if {lifo} or pg_sequence_last_value({next}) - coalesce(low, 0) <= 1024 then
            return;
        end if;
    end if;
    if pg_current_xact_id_if_assigned() is not null then
        return;
    end if;
    seq := coalesce(pg_sequence_last_value({seq}), 0);
    perform pg_current_xact_id(); -- draws it
    if not stale then
        perform {mark}('', 0::smallint, seq);
        return;
    end if;
    perform setval({stale}, 0);
    for lane in
        with recursive m as (
            (select m.grp, m.priority from {schema}._mark m where m.queue = {id} order by m.grp, m.priority limit 1)
            union all
            select n.grp, n.priority from m cross join lateral (
                select n.grp, n.priority from {schema}._mark n where n.queue = {id} and (n.grp, n.priority) > (m.grp, m.priority)
                 order by n.grp, n.priority limit 1) n)
        select m.grp, m.priority from m union select '', 0::smallint
    loop
        perform {mark}(lane.grp, lane.priority, seq);
    end loop;
end $fn$;

-- {tidy} is done about once a second. It makes the flags follow the columns, and gives
-- space back: what does that looks names up, so sizes and registers are looked at first.
create or replace function {tidy}(now_ms bigint) returns void
language plpgsql volatile as $fn$
declare
    here  constant int := pg_sequence_last_value({ring}) % 1024;
    seq   constant bigint := coalesce(pg_sequence_last_value({seq}), 0);
    known constant tid := (select s.job from {schema}._segment s where s.queue = {id} and s.slot = here);
    began timestamptz;
    one   tid := '(0,0)';
    q     record;
begin
    if seq <> pg_sequence_last_value({seen}) or now_ms < pg_sequence_last_value({since}) then
        perform setval({seen}, seq), setval({since}, now_ms);
    end if;
    select x.paused, x.max_running is not null as limited, pg_sequence_last_value({flags}) as flags, x.segment_bytes,
           pg_relation_size(({segments})[here + 1]) > 0 and not coalesce((select {schema}._not_yet(s.again) from {schema}._segment s where s.queue = {id} and s.slot = here), false) as used,
           pg_table_size(({segments})[here + 1]) as bytes,
           now_ms - pg_sequence_last_value({since}) as idle,
           exists (select from {schema}._segment s where s.queue = {id} and s.slot <> here and not {schema}._not_yet(s.again))
           or exists (select from unnest({segments}) with ordinality g(oid, n)
                       where pg_relation_size(g.oid) > 0 and not exists (select from {schema}._segment s where s.queue = {id} and s.slot = g.n - 1)) as others
      into q
      from {schema}._queue x where x.id = {id};
    if q.paused::int + 2 * q.limited::int <> q.flags >> 33 & 3 then
        perform {schema}._set_flags({id});
    end if;
    if q.used and not q.others and q.bytes < q.segment_bytes
       and (q.bytes >= 16777216 or q.idle >= case when q.bytes >= 1048576 then 1000 else 10000 end) then
        began := clock_timestamp();
{segments here}
        one := coalesce((select t.ctid from {segment} t where t.ctid = known), -- as _job_in does
                        (select t.ctid from {segment} t order by t.xid {last_first} limit 1));
{end}
        if one is not null and clock_timestamp() - began > interval '10 ms' then -- else it can go, whatever the search has cost
            update {schema}._segment s set job = one, again = {schema}._look_again(began) where s.queue = {id} and s.slot = here;
        end if;
    end if;
    if q.others or q.bytes >= q.segment_bytes or one is null then
        perform {schema}._maintain_ring({name});
    end if;
    perform {schema}._reclaim_pairs();
end $fn$;

$$ $text$;

-- _tick_at_commit ticks at the end of a transaction that it must not make fail. A row is deleted by
-- its place: it never moves, and _tick has no index.
--
-- Deferred triggers run at PREPARE TRANSACTION, too, and where constraints are set immediate;
-- what a tick locks would stay locked for as long as the transaction goes on. Whether it
-- ends now is told by the client's statement, and by there being no function around it but
-- one that commits.
create or replace function _tick_at_commit() returns trigger
language plpgsql volatile security definer set search_path from current as $$
declare
    queue  text := (select q.name from _queue q where q.id = new.queue);
    around text;
begin
    get diagnostics around = pg_context;
    around := substring(around from e'\n(.*?)(\n|$)');
    if queue is not null and (around is null or around like '%COMMIT')
       and current_query() ~* $re$\mprepare\M.*\mtransaction\M|\mset\M.*\mconstraints\M$re$ is not true then
        begin
            execute format('select %s()', _q(format('_%s.tick', queue)));
        exception when others then
            raise warning 'the upkeep of a queue failed: %', sqlerrm;
        end;
    end if;
    delete from _tick t where t.ctid = new.ctid;
    return null;
end $$;

-- _set_flags makes the flags follow the columns, from which a call that was rolled
-- back after it had set them makes them differ.
create or replace function _set_flags(queue int) returns void
language plpgsql volatile set search_path from current as $$
declare
    q      _queue := (select q from _queue q where q.id = queue);
    flags  regclass := _q(format('_%s.flags', q.name))::regclass;
    wanted bigint := case when q.paused then 1::bigint << 33 else 0 end | case when q.max_running is not null then 1::bigint << 34 else 0 end;
begin
    if pg_sequence_last_value(flags) & (3::bigint << 33) <> wanted then
        perform pg_advisory_lock(1885695597, flags::oid::int); -- as {raise} does
        perform setval(flags, pg_sequence_last_value(flags) & ~(3::bigint << 33) | wanted);
        perform setval(_q(format('_%s.way', q.name)), 0); -- look
        perform pg_advisory_unlock(1885695597, flags::oid::int);
    end if;
end $$;
