-- Jobs: leases, retries, delays, keys. What a queue needs beyond its
-- ring (00003) and a plain INSERT or dequeue. A job is in exactly one place at a time,
-- and moves by a DELETE and an INSERT in one transaction:
--
--   ready ring -> _lease          claim
--   _lease     -> nothing         ack
--   _lease     -> _later -> ready retry, once it is due
--   _lease     -> ready           release, or its lease ended
--   ready      -> _later -> ready it waits for another job of its key
--   _lease     -> _dead_job       bury, or the last attempt failed

-- +goose Up

alter table _queue
    add column paused       boolean not null default false,
    add column max_running  integer check (max_running > 0),
    add column dedup_window interval not null default '1 hour' check (dedup_window > interval '0');

-- Rings of two segments. Which one is written to, a sequence says; what is left of
-- the other is carried over, and it is truncated, also under a pinned snapshot.
create sequence _lease_slot minvalue 0 maxvalue 1;
select setval('_lease_slot', 0);
create sequence _later_slot minvalue 0 maxvalue 1;
select setval('_later_slot', 0);
create sequence _dedup_slot minvalue 0 maxvalue 1;
select setval('_dedup_slot', 0);
create sequence _lease_n;

-- What has been claimed. Only extend updates a row.
create table _lease (
    lease       bigint not null default nextval('_lease_n'),
    queue       integer not null,
    attempt     integer not null,     -- this one counted
    lease_until timestamptz not null,
    id          bigint not null,
    created_at  timestamptz not null,
    priority    smallint not null,
    slot        smallint not null default pg_sequence_last_value('_lease_slot')::smallint,
    worker      text not null,
    grp         text not null,
    key         text,
    headers     jsonb,
    payload     bytea not null,
    failures    jsonb
) partition by list (slot);

create table _lease_0 partition of _lease for values in (0) with (autovacuum_enabled = false, toast.autovacuum_enabled = false);
create table _lease_1 partition of _lease for values in (1) with (autovacuum_enabled = false, toast.autovacuum_enabled = false);
create index on _lease (lease);
create index on _lease (queue, lease_until);
create index on _lease (queue, key) where key is not null;

-- What may not run yet: until a time, or, at infinity, until an earlier job of its
-- key has ended.
create table _later (
    id         bigint not null,
    queue      integer not null,
    attempt    integer not null,      -- how many it has had
    due        timestamptz not null,
    created_at timestamptz not null,
    priority   smallint not null,
    slot       smallint not null default pg_sequence_last_value('_later_slot')::smallint,
    grp        text not null,
    key        text,
    headers    jsonb,
    payload    bytea not null,
    failures   jsonb
) partition by list (slot);

create table _later_0 partition of _later for values in (0) with (autovacuum_enabled = false, toast.autovacuum_enabled = false);
create table _later_1 partition of _later for values in (1) with (autovacuum_enabled = false, toast.autovacuum_enabled = false);
create index on _later (queue, due, id);
create index on _later (queue, key, id) where key is not null;
create index on _later (queue, id);

create table _dedup (
    queue     integer not null,
    id        bigint not null,        -- the job that came first
    at        timestamptz not null default clock_timestamp(),
    slot      smallint not null default pg_sequence_last_value('_dedup_slot')::smallint,
    dedup_key text not null
) partition by list (slot);

create table _dedup_0 partition of _dedup for values in (0) with (autovacuum_enabled = false);
create table _dedup_1 partition of _dedup for values in (1) with (autovacuum_enabled = false);
create index on _dedup (queue, dedup_key, at);

create table _dead_job (
    queue      integer not null references _queue on delete cascade,
    id         bigint not null,
    attempt    integer not null,
    created_at timestamptz not null,
    died_at    timestamptz not null default clock_timestamp(),
    priority   smallint not null,
    grp        text not null,
    key        text,
    headers    jsonb,
    payload    bytea not null,
    failures   jsonb not null,
    primary key (queue, id)
);

-- An operator, see grant_operator, sees the dead letters of his queues.
alter table _dead_job enable row level security;
create policy operator on _dead_job for select using (queue in (
    select q.id from _queue q where has_function_privilege(to_regprocedure(_q(format('_%s.status', q.name)) || '()'), 'execute')));

-- _failed adds a failure to a job's history and keeps the latest ten.
-- +goose StatementBegin
create function _failed(failures jsonb, attempt int, error text) returns jsonb
language sql volatile set search_path from current as $$
    select jsonb_agg(e order by i)
      from (select e, i from jsonb_array_elements(coalesce(failures, '[]') || jsonb_build_object(
                'attempt', attempt, 'error', coalesce(error, ''),
                'at', to_char(clock_timestamp() at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'))) with ordinality x(e, i)
             order by i desc limit 10) latest
$$;
-- +goose StatementEnd

-- _refuse_job raises what is wrong with a job, as a producer is to read it.
-- +goose StatementBegin
create function _refuse_job(payload bytea, key text, grp text, priority int, headers jsonb, dedup_key text) returns void
language plpgsql volatile set search_path from current as $$
begin
    if payload is null then
        raise exception 'the payload is null' using errcode = '22023', hint = 'use an empty payload if the job needs none';
    elsif octet_length(payload) > 67108864 then
        raise exception 'the payload has % bytes, the limit is 67108864', octet_length(payload)
        using errcode = '23514', hint = 'store it elsewhere and enqueue a reference';
    elsif octet_length(key) > 1024 then
        raise exception 'the key has % bytes, the limit is 1024', octet_length(key) using errcode = '23514', hint = 'use a hash of it';
    elsif octet_length(grp) > 256 then
        raise exception 'the group has % bytes, the limit is 256', octet_length(grp) using errcode = '23514', hint = 'use a shorter name, or a hash of it';
    elsif priority not between -16 and 15 then
        raise exception 'the priority is %, expected -16 to 15', priority using errcode = '23514', hint = 'lower numbers run first; 0 is the default';
    elsif octet_length(dedup_key) > 256 then
        raise exception 'the dedup_key has % bytes, the limit is 256', octet_length(dedup_key) using errcode = '23514', hint = 'use a hash of it';
    elsif jsonb_typeof(headers) <> 'object' then
        raise exception 'the headers are a JSON %, expected an object', jsonb_typeof(headers)
        using errcode = '23514', hint = 'for example {"trace": "4bf92f35"}';
    end if;
end $$;
-- +goose StatementEnd

-- +goose StatementBegin
create function _lost(lease bigint) returns timestamptz
language plpgsql volatile set search_path from current as $$
begin
    raise exception 'lease % is lost', coalesce(lease::text, 'null')
    using errcode = '55000', hint = 'it has ended, or the job was settled or cancelled: extend leases while a job runs, or claim with a longer one';
end $$;
-- +goose StatementEnd

-- _job_functions is the text of a queue's own functions, like _queue_functions. They
-- run as the schema's owner: a role may do what it was granted of them, and nothing
-- to other queues.
-- +goose StatementBegin
create function _job_functions() returns text
language sql immutable set search_path from current as $text$ select $$

-- {enqueue} writes one job and returns its id; of a duplicate, the first one's.
create or replace function {enqueue}(payload bytea, key text, grp text, priority int, not_before timestamptz, dedup_key text, headers jsonb) returns bigint
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $fn$
declare
    made bigint;
begin
    if (octet_length(payload) <= 67108864 and (key is null or octet_length(key) <= 1024) and (grp is null or octet_length(grp) <= 256)
        and coalesce(priority, 0) between -16 and 15 and (dedup_key is null or octet_length(dedup_key) <= 256)
        and (headers is null or jsonb_typeof(headers) = 'object')) is not true then
        perform {schema}._refuse_job(payload, key, grp, priority, headers, dedup_key);
    end if;
    if dedup_key is not null then
        perform pg_advisory_xact_lock(hashtextextended(dedup_key, -{id}));
        made := {first}(dedup_key);
        if made is not null then
            return made;
        end if;
    end if;
    if not_before is null or not_before <= clock_timestamp() then
        insert into {queue} (key, grp, priority, headers, payload)
        values (key, coalesce(grp, ''), coalesce(priority, 0), headers, payload) returning seq into made;
    elsif not_before = 'infinity' then -- in _later that means something else
        raise exception 'not_before is infinity' using errcode = '22023', hint = 'give a time, or do not enqueue the job yet';
    else
        made := nextval({seq});
        insert into {schema}._later (id, queue, attempt, due, created_at, priority, grp, key, headers, payload)
        values (made, {id}, 0, not_before, clock_timestamp(), coalesce(priority, 0), coalesce(grp, ''), key, headers, payload);
    end if;
    if dedup_key is not null then
        insert into {schema}._dedup (queue, id, dedup_key) values ({id}, made, dedup_key);
    end if;
    return made;
end $fn$;

-- {first} is the id that a dedup_key stands for, null once its window has passed.
create or replace function {first}(in_key text) returns bigint
language plpgsql volatile set enable_seqscan = off set enable_bitmapscan = off as $fn$
begin
    return (select d.id from {schema}._dedup d
             where d.queue = {id} and d.dedup_key = in_key
               and d.at > clock_timestamp() - (select q.dedup_window from {schema}._queue q where q.id = {id})
             order by d.at desc limit 1);
end $fn$;

create or replace function {enqueue_many}(payloads bytea[], keys text[], grps text[], priorities int[], not_befores timestamptz[], dedup_keys text[], headers jsonb[]) returns setof bigint
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $fn$
declare
    many constant int := coalesce(cardinality(payloads), 0);
    i int;
    bad record;
begin
    if coalesce(cardinality(keys), many) <> many or coalesce(cardinality(grps), many) <> many or coalesce(cardinality(priorities), many) <> many
       or coalesce(cardinality(not_befores), many) <> many or coalesce(cardinality(dedup_keys), many) <> many or coalesce(cardinality(headers), many) <> many then
        raise exception 'the arrays differ in length' using errcode = '22023', hint = 'give each as many elements as payloads, or null instead of the array';
    end if;
    if cardinality(not_befores) > 0 or cardinality(dedup_keys) > 0 then
        if cardinality(dedup_keys) > 0 then -- in one order, so that two calls do not wait for each other
            perform pg_advisory_xact_lock(h.hash) from (select distinct hashtextextended(k, -{id}) as hash from unnest(dedup_keys) k where k is not null order by 1) h;
        end if;
        for i in 1 .. many loop
            return next {enqueue}(payloads[i], keys[i], grps[i], priorities[i], not_befores[i], dedup_keys[i], headers[i]);
        end loop;
        return;
    end if;
    for bad in select * from unnest(payloads, keys, grps, priorities, headers) j(payload, key, grp, priority, headers)
                where (octet_length(j.payload) <= 67108864 and (j.key is null or octet_length(j.key) <= 1024) and (j.grp is null or octet_length(j.grp) <= 256)
                       and coalesce(j.priority, 0) between -16 and 15 and (j.headers is null or jsonb_typeof(j.headers) = 'object')) is not true loop
        perform {schema}._refuse_job(bad.payload, bad.key, bad.grp, bad.priority, bad.headers, null);
    end loop;
    return query
    insert into {queue} (key, grp, priority, headers, payload)
    select j.key, coalesce(j.grp, ''), coalesce(j.priority, 0), j.headers, j.payload
      from unnest(payloads, keys, grps, priorities, headers) j(payload, key, grp, priority, headers)
    returning seq;
end $fn$;

-- {claim} takes jobs from the ring and leases them.
create or replace function {claim}(n int, lease interval, in_grp text, worker text) returns setof {schema}.leased_job
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set jit = off set plan_cache_mode = force_generic_plan as $fn$
declare
    flags constant bigint := pg_sequence_last_value({flags});
    until constant timestamptz := clock_timestamp() + lease;
    room  int;
begin
    if (n between 1 and 10000 and lease > interval '0') is not true then
        if (n between 1 and 10000) is not true then
            raise exception 'n is %, expected 1 to 10000', coalesce(n::text, 'null') using errcode = '22023', hint = 'call claim again for more';
        end if;
        raise exception 'the lease is %, expected more than nothing', coalesce(lease::text, 'null')
        using errcode = '22023', hint = 'give the time a job takes and some more, for example interval ''30 s''';
    end if;
    if flags & 30064771072 = 0 then -- neither keyed nor paused nor limited
        if pg_sequence_last_value({lease_slot}) = 0 then
            return query
            insert into {schema}._lease_0 as l (slot, queue, attempt, lease_until, id, created_at, priority, worker, grp, key, headers, payload, failures)
            select 0, {id}, t.attempt + 1, until, coalesce(t.id, t.seq), t.created_at, t.priority, coalesce(worker, ''), t.grp, t.key, t.headers, t.payload, t.failures
              from {take_rows}(n, in_grp) t
            returning l.id, l.key, l.grp, l.priority, l.attempt, l.created_at, l.headers, l.payload, l.lease, l.lease_until;
        else
            return query
            insert into {schema}._lease_1 as l (slot, queue, attempt, lease_until, id, created_at, priority, worker, grp, key, headers, payload, failures)
            select 1, {id}, t.attempt + 1, until, coalesce(t.id, t.seq), t.created_at, t.priority, coalesce(worker, ''), t.grp, t.key, t.headers, t.payload, t.failures
              from {take_rows}(n, in_grp) t
            returning l.id, l.key, l.grp, l.priority, l.attempt, l.created_at, l.headers, l.payload, l.lease, l.lease_until;
        end if;
        {tick_if_due}
        return;
    end if;
    if flags & 8589934592 <> 0 then
        return; -- paused
    end if;
    room := n;
    if flags & 17179869184 <> 0 then -- limited: one claim at a time, and it counts
        if not pg_try_advisory_xact_lock({lease_table}::oid::int, {id}) then
            return;
        end if;
        room := {room}(n);
        if room <= 0 then
            return;
        end if;
    end if;
    return query
    insert into {schema}._lease as l (queue, attempt, lease_until, id, created_at, priority, worker, grp, key, headers, payload, failures)
    select {id}, t.attempt + 1, until, coalesce(t.id, t.seq), t.created_at, t.priority, coalesce(worker, ''), t.grp, t.key, t.headers, t.payload, t.failures
      from {take_keyed}(room, in_grp, true) t
    returning l.id, l.key, l.grp, l.priority, l.attempt, l.created_at, l.headers, l.payload, l.lease, l.lease_until;
    {tick_if_due}
end $fn$;

-- {room} is how many more jobs may run.
create or replace function {room}(n int) returns int
language sql volatile set enable_seqscan = off set enable_bitmapscan = off as $fn$
    select least(n, coalesce(q.max_running, n) - (select count(*) from {schema}._lease l where l.queue = {id})::int)
      from {schema}._queue q where q.id = {id}
$fn$;

-- {take_keyed} is {take} where jobs have keys. Whoever runs a job of a key holds the
-- key's lock until his transaction ends, and has a lease from then on; so a statement
-- that begins with the lock held sees whether one runs, and whether one with a smaller
-- id is still to run. Jobs that must wait are put aside, at the cost of one move each.
create or replace function {take_keyed}(n int, in_grp text, leasing boolean) returns setof {queue}
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set jit = off set plan_cache_mode = force_generic_plan as $fn$
declare
    flags  constant bigint := pg_sequence_last_value({flags});
    m      {schema}._mark;
    here   smallint;
    pos    bigint;
    todo   int := n;
    got    int;
    locked int := 0;    -- keys
    moved  int := 0;    -- jobs put aside
    skip   text[] := '{}';
    ctids  tid[];
    seqs   bigint[];
    ids    bigint[];
    keys   text[];
    chosen bigint[];
    run    bigint[];
    busy   text[];
    last   int;
begin
    if flags & 17179869184 <> 0 and not leasing then
        raise exception 'the queue limits how many jobs run, which dequeue cannot count'
        using errcode = '0A000', hint = 'use claim, or lift the limit: select set_queue(name, max_running => 0)';
    end if;
    <<levels>>
    for p in -16 .. 15 loop
        continue when flags & (1::bigint << (16 + p)) = 0;
        select * into m from {schema}._mark k where k.queue = {id} and k.grp = in_grp and k.priority = p order by k.n desc limit 1;
        if m.n is null or random() * 64 < n
           or m.pending <> '{}' and exists (select from unnest(m.pending) x where pg_visible_in_snapshot(x, pg_current_snapshot())) then
            m := {mark}(in_grp, p::smallint);
        end if;
        if m.turn <> pg_sequence_last_value({ring}) then
            m.slots := {slots}();
        end if;
        foreach here in array m.slots loop
            pos := {start};
            loop
                select array_agg(v.ctid), array_agg(v.seq), array_agg(v.id), array_agg(v.key) into ctids, seqs, ids, keys
                  from (select v.* from unnest(m.lo, m.hi) i(lo, hi) cross join lateral (
                            select t.ctid, t.seq, coalesce(t.id, t.seq) as id, t.key from {queue} t
                             where t.slot = here and t.grp = in_grp and t.priority = p and t.seq >= i.lo and t.seq <= i.hi and t.seq {beyond} pos
                               and (t.key is null or t.key <> all (skip))
                             order by t.seq {dir} limit greatest(todo, 64)) v
                         limit greatest(todo, 64)) v;
                exit when seqs is null;
                select array_agg(c.i), array_agg(distinct c.key) filter (where c.key is not null) into chosen, busy
                  from (select c.* from (select k.key, k.i, ids[k.i] as id from unnest(keys) with ordinality k(key, i) offset 0) c
                         where case when c.key is null then true
                                    when locked >= 500 then false
                                    when not leasing and {busy} then false
                                    else pg_try_advisory_xact_lock(hashtextextended(c.key, {id})) end
                         limit todo) c;
                last := case when cardinality(chosen) = todo then chosen[todo] else cardinality(keys) end;
                pos := seqs[last];
                locked := locked + coalesce(cardinality(busy), 0);
                skip := skip || array(select distinct c.key from unnest(keys) with ordinality c(key, i)
                                       where c.i <= last and c.key is not null and (chosen is null or c.i <> all (chosen)));
                continue when chosen is null;
                run := chosen;
                if busy is not null then -- a new statement: it sees what ended before the locks were had
                    select array_agg(c.i order by c.i) into run
                      from (select i, ids[i] as id, keys[i] as key from unnest(chosen) i) c
                     where c.key is null or not {busy};
                    -- Of a key that runs now the others stay where they are; of one that
                    -- cannot, they are put aside, by a claim: a dequeue may be part of a
                    -- long transaction, and should lock no key in vain.
                    busy := array(select unnest(busy) except select keys[i] from unnest(run) i);
                    skip := skip || array(select distinct keys[i] from unnest(run) i where keys[i] is not null);
                    if busy <> '{}' and leasing then
                        with d as (
                            delete from {queue} t
                             where t.slot = here
                               and t.ctid = any (array(select ctids[c.i] from unnest(keys) with ordinality c(key, i) where c.key = any (busy)))
                               and t.seq = any (seqs) and t.key = any (busy)
                            returning t.*)
                        insert into {schema}._later (id, queue, attempt, due, created_at, priority, grp, key, headers, payload, failures)
                        select coalesce(d.id, d.seq), {id}, d.attempt, 'infinity', d.created_at, d.priority, d.grp, d.key, d.headers, d.payload, d.failures from d;
                        get diagnostics got = row_count;
                        moved := moved + got;
                        if moved > 1000 then
                            skip := skip || busy; -- the next call goes on with it
                        end if;
                    else
                        skip := skip || busy;
                    end if;
                end if;
                if run is not null then
                    return query
                    with d as (
                        delete from {queue} t
                         where t.slot = here
                           and t.ctid = any (array(
                            select t.ctid from {queue} t
                             where t.slot = here and t.ctid = any (array(select ctids[i] from unnest(run) i)) and t.seq = any (seqs)
                               for update skip locked))
                        returning t.*)
                    select * from d order by d.seq {dir};
                    get diagnostics got = row_count;
                    todo := todo - got;
                    if not leasing and busy is not null then
                        perform {promote}(array(select distinct keys[i] from unnest(run) i where keys[i] is not null));
                    end if;
                    exit levels when todo <= 0;
                end if;
            end loop;
        end loop;
    end loop;
end $fn$;

-- {promote} makes the next job of each key ready, if it only waits for its key. What it
-- cannot lock at once it leaves to the next tick, which is owed then.
create or replace function {promote}(in_keys text[]) returns void
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set jit = off set plan_cache_mode = force_generic_plan as $fn$
declare
    k    text;
    head bigint;
begin
    foreach k in array in_keys loop
        if pg_try_advisory_xact_lock(hashtextextended(k, {id})) then
            select l.id into head from {schema}._later l -- one that is only delayed has no place in its key yet
             where l.queue = {id} and l.key = k and (l.attempt > 0 or l.due = 'infinity') order by l.id limit 1;
            continue when head is null;
            with w as (
                delete from {schema}._later l
                 where l.queue = {id} and l.key = k and l.id = head and l.due = 'infinity'
                   and not exists (select from {schema}._lease e where e.queue = {id} and e.key = k)
                   and not exists (select from {queue} r where r.key = k and r.id < head)
                   and not exists (select from {queue} r where r.key = k and r.id is null and r.seq < head)
                returning l.*)
            insert into {queue} (id, attempt, created_at, priority, grp, key, headers, payload, failures)
            select w.id, w.attempt, w.created_at, w.priority, w.grp, w.key, w.headers, w.payload, w.failures from w;
        else
            perform setval({tick_register}, greatest(pg_sequence_last_value({tick_register}) - 250, 0));
        end if;
    end loop;
end $fn$;

-- {ack} ends jobs and returns the leases that were held. queue + 0 keeps the planner
-- from the indexes that begin with the queue: a lease is found by its number.
create or replace function {ack}(in_leases bigint[]) returns setof bigint
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set jit = off set plan_cache_mode = force_generic_plan as $fn$
declare
    held bigint[];
    keys text[];
begin
    if pg_sequence_last_value({flags}) & 4294967296 = 0 then
        return query delete from {schema}._lease l where l.lease = any (in_leases) and l.queue + 0 = {id} returning l.lease;
        return;
    end if;
    with d as (delete from {schema}._lease l where l.lease = any (in_leases) and l.queue + 0 = {id} returning l.lease, l.key)
    select array_agg(d.lease), array_agg(distinct d.key) filter (where d.key is not null) into held, keys from d;
    if keys is not null then
        perform {promote}(keys);
    end if;
    return query select unnest(held);
end $fn$;

create or replace function {extend}(in_leases bigint[], by interval) returns table (lease bigint, lease_until timestamptz)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set jit = off set plan_cache_mode = force_generic_plan as $fn$
begin
    if (by > interval '0') is not true then
        raise exception 'the lease is %, expected more than nothing', coalesce(by::text, 'null')
        using errcode = '22023', hint = 'it is counted from now, for example interval ''30 s''';
    end if;
    return query update {schema}._lease l set lease_until = clock_timestamp() + by
                  where l.lease = any (in_leases) and l.queue + 0 = {id} returning l.lease, l.lease_until;
end $fn$;

-- {release} gives jobs back as if they had not been claimed: at once, and the attempt
-- does not count. By its id a job keeps its place among those of its key.
create or replace function {release}(in_leases bigint[]) returns setof bigint
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set jit = off set plan_cache_mode = force_generic_plan as $fn$
begin
    return query
    with d as (delete from {schema}._lease l where l.lease = any (in_leases) and l.queue + 0 = {id} returning l.*),
    back as (
        insert into {queue} (id, attempt, created_at, priority, grp, key, headers, payload, failures)
        select d.id, d.attempt - 1, d.created_at, d.priority, d.grp, d.key, d.headers, d.payload, d.failures from d order by d.id)
    select d.lease from d;
end $fn$;

-- {fail} ends an attempt that failed: the job is to run again when it is due, or is
-- dead if due is null or the attempts are used up. It returns whether it will run.
create or replace function {fail}(in_lease bigint, after interval, error text, final boolean) returns boolean
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set jit = off set plan_cache_mode = force_generic_plan as $fn$
declare
    l {schema}._lease;
begin
    delete from {schema}._lease x where x.lease = in_lease and x.queue + 0 = {id} returning * into l;
    if not found then
        perform {schema}._lost(in_lease);
    end if;
    l.failures := {schema}._failed(l.failures, l.attempt, error);
    if final or l.attempt >= (select q.max_attempts from {schema}._queue q where q.id = {id}) then
        insert into {schema}._dead_job (queue, id, attempt, created_at, priority, grp, key, headers, payload, failures)
        values ({id}, l.id, l.attempt, l.created_at, l.priority, l.grp, l.key, l.headers, l.payload, l.failures);
        if l.key is not null then
            perform {promote}(array[l.key]);
        end if;
        return false;
    end if;
    after := coalesce(after, least(3600, 2 ^ least(l.attempt, 12)) * (0.8 + 0.4 * random()) * interval '1 s');
    if after <= interval '0' then
        insert into {queue} (id, attempt, created_at, priority, grp, key, headers, payload, failures)
        values (l.id, l.attempt, l.created_at, l.priority, l.grp, l.key, l.headers, l.payload, l.failures);
    else
        insert into {schema}._later (id, queue, attempt, due, created_at, priority, grp, key, headers, payload, failures)
        values (l.id, {id}, l.attempt, clock_timestamp() + after, l.created_at, l.priority, l.grp, l.key, l.headers, l.payload, l.failures);
    end if;
    return true;
end $fn$;

-- {cancel} removes jobs wherever they are. Running ones lose their lease. A job has an
-- id of its own, with an index, if it came back or was put off. That of another is its
-- seq, for which an index of its own would cost every enqueue: it is looked up in each
-- group and priority, or, where these are more than a thousand, the ring is read. Of what is leased all is read: two
-- segments at most.
create or replace function {cancel}(in_ids bigint[]) returns int
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off set plan_cache_mode = force_generic_plan as $fn$
declare
    flags      constant bigint := pg_sequence_last_value({flags});
    priorities constant smallint[] := array(select p from generate_series(-16, 15) p where flags & (1::bigint << (16 + p)) <> 0);
    grps       constant text[] := array(select {groups}(1000));
    keys       text[] := '{}'; -- one for each job, null without a key
begin
    if cardinality(grps) * cardinality(priorities) * cardinality(in_ids) <= 1000 then -- so grps is the whole list
        with d as (delete from {queue} t using unnest(grps) g(grp), unnest(priorities) p(priority)
                    where t.grp = g.grp and t.priority = p.priority and t.seq = any (in_ids) and t.id is null returning t.key)
        select keys || array_agg(d.key) into keys from d;
        with d as (delete from {queue} t where t.id = any (in_ids) returning t.key)
        select keys || array_agg(d.key) into keys from d;
    else
        select keys || array_agg(k) into keys from {cancel_all}(in_ids) k;
    end if;
    with d as (delete from {schema}._later l where l.queue = {id} and l.id = any (in_ids) returning l.key)
    select keys || array_agg(d.key) into keys from d;
    with d as (delete from {schema}._lease l where l.queue = {id} and l.id = any (in_ids) returning l.key)
    select keys || array_agg(d.key) into keys from d;
    perform {promote}(array(select distinct k from unnest(keys) k where k is not null));
    return cardinality(keys);
end $fn$;

create or replace function {cancel_all}(in_ids bigint[]) returns setof text
language sql volatile set enable_seqscan = on as $fn$
    delete from {queue} t where coalesce(t.id, t.seq) = any (in_ids) returning t.key
$fn$;

-- {groups} lists those that may have jobs in the ring, and ends after most. At the jobs
-- of one that has a mark it does not look, because the first ones may be dead; between
-- such groups it goes from one to the next in the index.
create or replace function {groups}(most int) returns setof text
language plpgsql volatile set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set jit = off set plan_cache_mode = force_generic_plan as $fn$
declare
    at_grp text := '';
    marked text;
    found_grp text;
begin
    return next at_grp;
    for many in 1 .. most loop
        select m.grp into marked from {schema}._mark m where m.queue = {id} and m.grp > at_grp order by m.grp limit 1;
        if marked is null then
            select t.grp into found_grp from {queue} t where t.grp > at_grp order by t.grp limit 1;
        else
            select t.grp into found_grp from {queue} t where t.grp > at_grp and t.grp < marked order by t.grp limit 1;
        end if;
        at_grp := coalesce(found_grp, marked);
        exit when at_grp is null;
        return next at_grp;
    end loop;
end $fn$;

-- {pause} stops claims and dequeues, or lets them go on.
create or replace function {pause}(pausing boolean) returns void
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $fn$
begin
    update {schema}._queue q set paused = pausing where q.id = {id};
    perform {schema}._set_flags({id});
end $fn$;

create or replace function {retry_dead}(in_ids bigint[]) returns int
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $fn$
declare
    many int;
begin
    with d as (delete from {schema}._dead_job d where d.queue = {id} and d.id = any (in_ids) returning d.*)
    insert into {queue} (id, attempt, created_at, priority, grp, key, headers, payload, failures)
    select d.id, d.attempt, d.created_at, d.priority, d.grp, d.key, d.headers, d.payload, d.failures from d order by d.id;
    get diagnostics many = row_count;
    return many;
end $fn$;

create or replace function {discard_dead}(in_ids bigint[]) returns int
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $fn$
declare
    many int;
begin
    delete from {schema}._dead_job d where d.queue = {id} and d.id = any (in_ids);
    get diagnostics many = row_count;
    return many;
end $fn$;

-- {status} counts jobs by where they are. It reads the queue's own segments once, and
-- of the rings that it shares only its own part.
--
-- Of a key one job may run, unless one runs already, or an earlier one waits to be
-- tried again; the others wait for it. What is due, but was not moved yet, is ready.
create or replace function {status}() returns table (ready bigint, running bigint, delayed bigint, waiting bigint, dead bigint, oldest interval)
language sql volatile security definer set search_path = pg_catalog, pg_temp as $fn$
with line as (
    select t.key, count(*) as n, min(coalesce(t.id, t.seq)) as head, min(t.created_at) as oldest
      from {queue} t group by t.key),
ring as (
    select l.n, l.oldest, case
               when l.key is null then l.n
               when exists (select from {schema}._lease e where e.queue = {id} and e.key = l.key)
                 or exists (select from {schema}._later w where w.queue = {id} and w.key = l.key and w.id < l.head) then 0
               else 1 end as may
      from line l),
later as (
    select count(*) filter (where w.due <= clock_timestamp()) as ready,
           count(*) filter (where w.due > clock_timestamp() and w.due < 'infinity') as delayed,
           count(*) filter (where w.due = 'infinity') as waiting,
           min(w.created_at) filter (where w.due <= clock_timestamp()) as oldest
      from {schema}._later w where w.queue = {id})
select coalesce((select sum(r.may) from ring r), 0)::bigint + l.ready,
       (select count(*) from {schema}._lease e where e.queue = {id}),
       l.delayed,
       coalesce((select sum(r.n - r.may) from ring r), 0)::bigint + l.waiting,
       (select count(*) from {schema}._dead_job d where d.queue = {id}),
       greatest(interval '0', coalesce(clock_timestamp() - least(l.oldest, (select min(r.oldest) from ring r where r.may > 0)), interval '0'))
  from later l
$fn$;

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
        perform pg_advisory_lock(1885695597, flags::oid::int); -- as _note does
        perform setval(flags, pg_sequence_last_value(flags) & ~(3::bigint << 33) | wanted);
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

-- _fill puts a queue's names into the text of a function.
-- +goose StatementBegin
create function _fill(body text, queue text) returns text
language plpgsql stable set search_path from current as $$
declare
    q    _queue := (select q from _queue q where q.name = queue);
    word text;
begin
    foreach word in array array['slots', 'mark', 'take', 'take_rows', 'take_keyed', 'enqueue', 'enqueue_many', 'first', 'claim', 'room',
                                'promote', 'ack', 'extend', 'release', 'fail', 'cancel', 'cancel_all', 'groups', 'tick',
                                'pause', 'retry_dead', 'discard_dead', 'status'] loop
        body := replace(body, '{' || word || '}', _q(format('_%s.%s', queue, word)));
    end loop;
    foreach word in array array['ring', 'flags', 'seq'] loop
        body := replace(body, '{' || word || '}', quote_literal(_q(format('_%s.%s', queue, word))) || '::regclass');
    end loop;
    foreach word in array array['lease_slot', 'lease'] loop
        body := replace(body, '{' || word || case word when 'lease' then '_table' else '' end || '}', quote_literal(_q('_' || word)) || '::regclass');
    end loop;
    body := replace(body, '{busy}', $sql$(exists (select from {schema}._lease l where l.queue = {id} and l.key = c.key)
                                            or exists (select from {schema}._later l where l.queue = {id} and l.key = c.key and l.id < c.id
                                                          and (l.attempt > 0 or l.due = 'infinity'))
                                            or exists (select from {queue} r where r.key = c.key and r.id < c.id)
                                            or exists (select from {queue} r where r.key = c.key and r.id is null and r.seq < c.id))$sql$);
    body := replace(body, '{queue_table}', quote_literal(_q('_queue'::text)) || '::regclass');
    body := replace(body, '{tick_if_due}', _tick_if_due());
    body := replace(body, '{tick_register}', quote_literal(_q(format('_%s.tick', queue))) || '::regclass');
    body := replace(body, '{name}', quote_literal(queue));
    body := replace(body, '{queue}', _q(queue));
    body := replace(body, '{schema}', quote_ident(current_schema()));
    body := replace(body, '{id}', q.id::text);
    body := replace(body, '{dir}', case when q.lifo then 'desc' else 'asc' end);
    body := replace(body, '{beyond}', case when q.lifo then '<' else '>' end);
    return replace(body, '{start}', case when q.lifo then '9223372036854775807' else '-1' end);
end $$;
-- +goose StatementEnd

-- _define_jobs makes a queue's functions, and the index by which cancel finds jobs.
-- +goose StatementBegin
create function _define_jobs(queue text) returns void
language plpgsql set search_path from current as $$
declare
    made text;
begin
    execute format('create index on %s (id) where id is not null', _q(queue));
    execute _fill(_job_functions(), queue);
    for made in select p.oid::regprocedure::text from _own_functions(queue) p loop
        execute 'revoke execute on function ' || made || ' from public';
    end loop;
end $$;
-- +goose StatementEnd

-- +goose StatementBegin
create function _own_functions(queue text) returns table (oid oid, name text)
language sql stable set search_path from current as $$
    select p.oid, n.name
      from pg_proc p, substr(p.proname::text, length(queue) + 3) n(name)
     where p.pronamespace = quote_ident(current_schema())::regnamespace and starts_with(p.proname::text, '_' || queue || '.') and position('.' in n.name) = 0
$$;
-- +goose StatementEnd

-- _dispatch_on makes a function that does, for each queue, what does says: a branch
-- for each, because a dynamic call costs several times a static one.
-- +goose StatementBegin
create function _dispatch_on(head text, does text) returns void
language plpgsql set search_path from current as $$
declare
    names    text[];
    branches text[];
begin
    select array_agg(quote_literal(q.name) order by q.name collate "C"),
           array_agg(format(e'if queue_name = %L then\n%s\nend if;', q.name, _fill(does, q.name)) order by q.name collate "C")
      into names, branches from _queue q;
    execute 'create or replace function ' || head || ' language plpgsql volatile as $fn$
declare
    queue_name alias for $1;
begin
    ' || coalesce(_choose('queue_name collate "C"', names, branches), '') || '
    raise exception ''there is no queue %'', coalesce(quote_literal(queue_name), ''null'')
    using errcode = ''42P01'', hint = ''create it with: penstock queue create '' || coalesce(quote_literal(queue_name), ''NAME'');
end $fn$';
end $$;
-- +goose StatementEnd

-- _dispatch_jobs makes the functions that take a queue's name. They run as their
-- caller, who needs the right to what they call.
-- +goose StatementBegin
create function _dispatch_jobs() returns void
language plpgsql set search_path from current as $$
begin
    perform _dispatch_on('enqueue(queue text, payload bytea, key text default null, grp text default '''', priority int default 0,
                                  not_before timestamptz default null, dedup_key text default null, headers jsonb default null) returns bigint',
        'return {enqueue}(payload, key, grp, priority, not_before, dedup_key, headers);');
    perform _dispatch_on('enqueue_many(queue text, payloads bytea[], keys text[] default null, grps text[] default null, priorities int[] default null,
                                       not_befores timestamptz[] default null, dedup_keys text[] default null, headers jsonb[] default null) returns setof bigint',
        'return query select {enqueue_many}(payloads, keys, grps, priorities, not_befores, dedup_keys, headers); return;');
    perform _dispatch_on('claim(queue text, n int default 1, lease interval default ''30 s'', grp text default '''', worker text default '''') returns setof leased_job',
        'return query select * from {claim}(n, lease, grp, worker); return;');
    perform _dispatch_on('ack(queue text, leases bigint[]) returns setof bigint',
        'return query select {ack}(leases); return;');
    perform _dispatch_on('ack(queue text, lease bigint) returns void',
        'if not exists (select from {ack}(array[lease])) then
            perform {schema}._lost(lease);
        end if;
        return;');
    perform _dispatch_on('extend(queue text, leases bigint[], by interval) returns setof bigint',
        'return query select e.lease from {extend}(leases, by) e; return;');
    perform _dispatch_on('extend(queue text, lease bigint, by interval) returns timestamptz',
        'return coalesce((select e.lease_until from {extend}(array[lease], by) e), {schema}._lost(lease));');
    perform _dispatch_on('release(queue text, leases bigint[]) returns setof bigint',
        'return query select {release}(leases); return;');
    perform _dispatch_on('release(queue text, lease bigint) returns void',
        'if not exists (select from {release}(array[lease])) then
            perform {schema}._lost(lease);
        end if;
        return;');
    perform _dispatch_on('retry(queue text, lease bigint, after interval default null, error text default '''') returns boolean',
        'return {fail}(lease, after, error, false);');
    perform _dispatch_on('bury(queue text, lease bigint, error text default '''') returns void',
        'perform {fail}(lease, null, error, true); return;');
    perform _dispatch_on('cancel(queue text, ids bigint[]) returns int',
        'return {cancel}(ids);');
    perform _dispatch_on('pause_queue(name text) returns void',
        'perform {pause}(true); return;');
    perform _dispatch_on('resume_queue(name text) returns void',
        'perform {pause}(false); return;');
    perform _dispatch_on('retry_dead_jobs(queue text, ids bigint[]) returns int',
        'return {retry_dead}(ids);');
    perform _dispatch_on('discard_dead_jobs(queue text, ids bigint[]) returns int',
        'return {discard_dead}(ids);');
    perform _dispatch_on('queue_status(queue text) returns table (ready bigint, running bigint, delayed bigint, waiting bigint, dead bigint, oldest interval)',
        'return query select * from {status}(); return;');
    perform _dispatch_on('maintain_queue(name text) returns void',
        'perform {tick}(true); return;');
end $$;
-- +goose StatementEnd

select _dispatch_jobs();

-- The same for text and JSON, as UTF-8; see publish.
-- +goose StatementBegin
create function enqueue(queue text, payload text, key text default null, grp text default '', priority int default 0,
                        not_before timestamptz default null, dedup_key text default null, headers jsonb default null) returns bigint
language sql volatile set search_path from current as $$
    select enqueue(queue, convert_to(payload, 'UTF8'), key, grp, priority, not_before, dedup_key, headers)
$$;
-- +goose StatementEnd

-- +goose StatementBegin
create function enqueue(queue text, payload jsonb, key text default null, grp text default '', priority int default 0,
                        not_before timestamptz default null, dedup_key text default null, headers jsonb default null) returns bigint
language sql volatile set search_path from current as $$
    select enqueue(queue, convert_to(payload::text, 'UTF8'), key, grp, priority, not_before, dedup_key, headers)
$$;
-- +goose StatementEnd

-- +goose StatementBegin
do $$ begin
    execute format('revoke execute on all functions in schema %I from public', current_schema()); -- 00006 grants
end $$;
-- +goose StatementEnd

-- +goose Down
select 'Penstock does not migrate down: drop the schema instead';
