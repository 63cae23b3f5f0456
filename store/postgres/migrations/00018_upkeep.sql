-- Upkeep: what time demands of a queue's jobs, and its storage.

-- +goose Up

-- _upkeep_functions is the text of the tick.
-- +goose StatementBegin
create function _upkeep_functions() returns text
language sql immutable set search_path from current as $text$ select $$

-- {tick} does what time demands. One process does it at a time; the register holds
-- when it was done last, in ms. since is a little before: what ended earlier has been
-- moved, except for what committed late, so every few seconds it looks at all.
create or replace function {tick}(first boolean default false) returns void
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set jit = off set plan_cache_mode = force_generic_plan as $fn$
declare
    last   bigint := pg_sequence_last_value({tick_register});
    now_ms bigint := extract(epoch from clock_timestamp()) * 1000;
    since  timestamptz := case when now_ms / 5000 = last / 5000 then to_timestamp(last / 1000.0) - interval '2 s' else '-infinity' end;
    upto   timestamptz := clock_timestamp(); -- a variable, because a volatile function is no bound of an index scan
    q      {schema}._queue;
    got    int;
    ids    bigint[];
    dues   timestamptz[];
    keys   text[];
    k      text;
    flags  bigint;
    more   boolean := false;
begin
    if not pg_try_advisory_xact_lock({queue_table}::oid::int, {id}) and now_ms - last < 1000 then
        return; -- else it may be a long transaction that ticked; nothing here needs the lock
    end if;
    if first then -- in its transaction
        perform {schema}._refresh_marks({name});
    end if;
    perform setval({tick_register}, now_ms);
    select * into q from {schema}._queue x where x.id = {id};

    for round in 1 .. 20 loop -- leases that have ended
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
            select f.id, f.attempt, f.created_at, f.priority, f.grp, f.key, f.headers, f.payload, f.history from noted f where f.attempt < q.max_attempts),
        dead as (
            insert into {schema}._dead_job (queue, id, attempt, created_at, priority, grp, key, headers, payload, failures)
            select {id}, f.id, f.attempt, f.created_at, f.priority, f.grp, f.key, f.headers, f.payload, f.history from noted f where f.attempt >= q.max_attempts)
        select count(*), array_agg(distinct f.key) filter (where f.key is not null and f.attempt >= q.max_attempts) into got, keys from noted f;
        if keys is not null then
            perform {promote}(keys);
        end if;
        exit when got < 500;
        more := more or round = 20;
    end loop;

    for round in 1 .. 20 loop -- jobs that have become due
        select array_agg(x.id), array_agg(x.due) into ids, dues
          from (select l.id, l.due from {schema}._later l
                 where l.queue = {id} and l.due > since and l.due <= upto
                 order by l.due limit 500 for update skip locked) x;
        exit when ids is null;
        with d as (
            delete from {schema}._later l using unnest(ids, dues) u(id, due)
             where l.queue = {id} and l.due = u.due and l.id = u.id
            returning l.*)
        insert into {queue} (id, attempt, created_at, priority, grp, key, headers, payload, failures)
        select d.id, d.attempt, d.created_at, d.priority, d.grp, d.key, d.headers, d.payload, d.failures from d order by d.due, d.id;
        exit when cardinality(ids) < 500;
        more := more or round = 20;
    end loop;

    -- Whose dedup_key a transaction has that has not ended comes with a later tick.
    perform {enqueue}(s.payload, s.key, s.grp, s.priority, null, s.dedup_key, s.headers), {schema}._next_run(s.queue, s.name)
       from (select * from {schema}._schedule s where s.queue = {id} and s.next <= upto for update skip locked) s
      where s.dedup_key is null or pg_try_advisory_xact_lock(hashtextextended(s.dedup_key, -{id}));

    flags := pg_sequence_last_value({flags});
    if flags & 4294967296 <> 0 then -- keys of which nothing runs and something waits
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
        perform {schema}._set_flags({id});
        perform {schema}._maintain_ring({name});
        perform {schema}._reclaim_pair('_lease', 16777216, 'true'),
                {schema}._reclaim_pair('_later', 8388608, 'true'),
                {schema}._reclaim_pair('_dedup', 16777216, 'r.at > clock_timestamp() - (select q.dedup_window from _queue q where q.id = r.queue)');
    end if;
end $fn$;

$$ $text$;
-- +goose StatementEnd

-- _tick_at_commit ticks at the end of a transaction, which it must not make fail.
-- +goose StatementBegin
create function _tick_at_commit() returns trigger
language plpgsql volatile security definer set search_path from current as $$
begin
    begin
        execute format('select %s()', _q(format('_%s.tick', (select q.name from _queue q where q.id = new.queue))));
    exception when others then
        raise warning 'the upkeep of a queue failed: %', sqlerrm;
    end;
    delete from _tick t where t.id = new.id;
    return null;
end $$;
-- +goose StatementEnd

create constraint trigger tick after insert on _tick deferrable initially deferred
for each row execute function _tick_at_commit();

-- _set_flags makes the flags follow the columns, from which a call that was rolled
-- back after it had set them makes them differ.
-- +goose StatementBegin
create function _set_flags(queue int) returns void
language plpgsql volatile set search_path from current as $$
declare
    q      _queue := (select q from _queue q where q.id = queue);
    flags  regclass := _q(format('_%s.flags', q.name))::regclass;
    wanted bigint := case when q.paused then 1::bigint << 33 else 0 end | case when q.max_running is not null then 1::bigint << 34 else 0 end;
begin
    if pg_sequence_last_value(flags) & (3::bigint << 33) <> wanted then
        perform pg_advisory_lock(1885695597, flags::oid::int); -- as _admit_other_job does
        perform setval(flags, pg_sequence_last_value(flags) & ~(3::bigint << 33) | wanted);
        perform setval(_q(format('_%s.way', q.name)), 0); -- look
        perform pg_advisory_unlock(1885695597, flags::oid::int);
    end if;
end $$;
-- +goose StatementEnd

-- _reclaim_pair keeps a ring of two segments small. A segment that is full is left to
-- empty itself; when little is left of it, or the other has become twice as large,
-- the rest is carried over and it is truncated. alive says which rows r count.
-- +goose StatementBegin
create function _reclaim_pair(ring text, full_bytes bigint, alive text) returns boolean
language plpgsql volatile set search_path from current set lock_timeout = '20ms'
set enable_hashjoin = off set enable_mergejoin = off set jit = off as $$
declare
    current int;
    sealed  int;
    columns text;
    body    boolean;
    bytes   bigint;
    many    int;
begin
    perform _read_committed();
    if not pg_try_advisory_xact_lock(_q(ring)::regclass::oid::int, 0) then
        return false;
    end if;
    current := pg_sequence_last_value(_q(ring || '_slot')::regclass);
    sealed := 1 - current;
    if pg_relation_size(_q(ring || '_' || sealed)) = 0 then
        if pg_table_size(_q(ring || '_' || current)) >= full_bytes then
            perform setval(_q(ring || '_slot')::regclass, sealed);
        end if;
        return false;
    end if;
    select string_agg(quote_ident(a.attname), ', '), bool_or(a.attname = 'payload') into columns, body
      from pg_attribute a where a.attrelid = _q(ring)::regclass and a.attnum > 0 and a.attname <> 'slot';
    alive := format('from %s r where %s and exists (select from _queue q where q.id = r.queue)', _q(ring || '_' || sealed), alive);
    execute format('select count(*), coalesce(sum(b), 0) from (select 200 + %s as b %s limit 20000) s',
                   case when body then 'octet_length(r.payload)' else '0' end, alive) into many, bytes;
    if (many = 20000 or bytes > 8388608) and pg_table_size(_q(ring || '_' || current)) < 2 * pg_table_size(_q(ring || '_' || sealed)) then
        return false;
    end if;
    execute format('lock table %s in access exclusive mode', _q(ring || '_' || sealed));
    execute format('insert into %s (slot, %s) select %s, %s %s', _q(ring || '_' || current), columns, current, columns, alive);
    execute format('truncate table %s', _q(ring || '_' || sealed));
    return true;
exception when lock_not_available then
    return false;
end $$;
-- +goose StatementEnd

-- +goose Down
select 'Penstock does not migrate down: drop the schema instead';
