-- Runs with search_path set to Penstock's schema and pg_temp; functions keep
-- that path (set search_path from current), so nothing a caller puts on its own
-- path is ever looked at.
--
-- Names that begin with an underscore are internal; an outbox is a table with
-- the name its users gave it.

-- +goose Up

create table _outbox (
    name          text primary key check (octet_length(name) between 1 and 48 and left(name, 1) <> '_'),
    uid           text not null,                     -- first half of every derived message id
    segment_bytes bigint not null default 134217728, -- rotate when the current segment, with TOAST, is this large
    retain_age    interval,                          -- how long and how much of what is settled is kept
    retain_bytes  bigint,
    created_at    timestamptz not null default now()
);

create table _subscription (
    id         bigint generated always as identity primary key,
    outbox     text not null references _outbox on delete cascade,
    name       text not null check (octet_length(name) between 1 and 128),
    created_at timestamptz not null default now(),
    unique (outbox, name)
);

-- The cursor log: an insert-only ring of two segments. The row with the highest
-- (epoch, n) of a subscription is its cursor and its lease at once: a relay that
-- lost the lease writes rows of a lower epoch, which nobody reads. An updated
-- row would do for correctness, but under a pinned snapshot its dead versions
-- pile up and every look at it walks them.
create sequence _cursor_slot minvalue 0 maxvalue 1;
select setval('_cursor_slot', 0);
create sequence _cursor_n;

create table _cursor (
    subscription bigint not null,
    epoch        bigint not null,
    n            bigint not null default nextval('_cursor_n'),
    at           timestamptz not null default clock_timestamp(),
    lease_until  timestamptz not null,
    since        timestamptz not null, -- when the holder took the lease
    low          bigint not null,  -- every row with xid >= pg_snapshot_xmax(done) has seq > low
    upto_low     bigint,           -- the same bound for upto
    pos          bigint,           -- within (done, upto], rows up to this seq are settled
    settled      bigint not null,  -- messages settled since the subscription was created
    system       bigint not null,  -- pg_control_system().system_identifier: xids mean nothing elsewhere
    slot         smallint not null default pg_sequence_last_value('_cursor_slot')::smallint,
    holder       text not null,
    done         pg_snapshot not null, -- everything visible in it is settled
    upto         pg_snapshot           -- null unless a backlog is being paged through
) partition by list (slot);

create table _cursor_0 partition of _cursor for values in (0) with (autovacuum_enabled = false);
create table _cursor_1 partition of _cursor for values in (1) with (autovacuum_enabled = false);
create index on _cursor (subscription, epoch, n);

create table _dead_letter (
    subscription bigint not null references _subscription on delete cascade,
    seq          bigint not null,
    id           text,
    key          text,
    topic        text not null,
    headers      jsonb,
    payload      bytea not null,
    created_at   timestamptz not null,
    attempt      integer not null,
    failures     jsonb not null,
    failed_since timestamptz,
    died_at      timestamptz not null default clock_timestamp(),
    held         boolean not null default false, -- later messages of its key wait for it
    retry        boolean not null default false, -- someone asked to send it again
    primary key (subscription, seq)
);
create index on _dead_letter (subscription, seq) where retry;

-- Settled messages that are to be delivered again: what the cursor that was durable
-- at the request covers, by seq. One row per request, updated once per settled page.
create table _replay (
    id           bigint generated always as identity primary key,
    subscription bigint not null references _subscription on delete cascade,
    outbox       text not null,
    pos          bigint not null,      -- up to this seq it is done
    to_seq       bigint not null,
    created_from timestamptz not null,
    created_to   timestamptz not null,
    done         pg_snapshot not null, -- as in _cursor
    upto         pg_snapshot not null,
    upto_pos     bigint not null,
    system       bigint not null
);
create index on _replay (subscription, id);

-- Roles that were granted the relay's privileges; later outboxes grant them too.
create table _relay_role (name name primary key);

-- _q qualifies and quotes the name of a relation of this schema. Unqualified, an
-- outbox called pg_class would be looked up in pg_catalog.
create function _q(name text) returns text
language sql stable set search_path from current
return format('%I.%I', current_schema(), name);

-- +goose StatementBegin
create function _grant_relay_on(outbox text, role name) returns void
language plpgsql set search_path from current as $$
begin
    execute format('grant select on table %s to %I', _q(outbox), role);
    execute format('grant select on sequence %s, %s to %I', _q('_' || outbox || '.seq'), _q('_' || outbox || '.slot'), role);
end $$;
-- +goose StatementEnd

-- _own gives an outbox that another role has made to the owner of the schema's other
-- tables, as whom _rotate and _reclaim run.
-- +goose StatementBegin
create function _own(outbox text) returns void
language plpgsql set search_path from current as $$
declare
    owner name := (select pg_get_userbyid(relowner) from pg_class where oid = '_outbox'::regclass);
    slot  int;
begin
    if owner = current_user then
        return;
    end if;
    execute format('alter table %s owner to %I', _q(outbox), owner);
    for slot in select s.slot from _segments(outbox) s loop
        execute format('alter table %s owner to %I', _q(format('_%s.%s', outbox, slot)), owner);
    end loop;
    execute format('alter sequence %s owner to %I', _q('_' || outbox || '.seq'), owner);
    execute format('alter sequence %s owner to %I', _q('_' || outbox || '.slot'), owner);
end $$;
-- +goose StatementEnd

-- _read_committed refuses to go on where a statement would not see what committed
-- before it: the functions below take a lock and then look.
-- +goose StatementBegin
create function _read_committed() returns void
language plpgsql set search_path from current as $$
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        raise exception 'this needs the isolation level read committed' using errcode = '25001';
    end if;
end $$;
-- +goose StatementEnd

-- _admit_message is the check of an outbox, so that limits hold for a plain INSERT. It is
-- one function because PostgreSQL parses each check of a table anew in every statement,
-- and has no search_path of its own, which would cost as much again: so all in it is
-- qualified.
-- +goose StatementBegin
create function _admit_message(id text, key text, topic text, headers jsonb, payload bytea) returns boolean
language plpgsql immutable as $$
begin
    if pg_catalog.octet_length(payload) operator(pg_catalog.<=) 67108864
       and pg_catalog.octet_length(topic) operator(pg_catalog.<=) 1024
       and (key is null or pg_catalog.octet_length(key) operator(pg_catalog.<=) 1024)
       and (id is null or pg_catalog.octet_length(id) operator(pg_catalog.<=) 256)
       and (headers is null or pg_catalog.jsonb_typeof(headers) operator(pg_catalog.=) 'object') then
        return true;
    end if;
    if pg_catalog.octet_length(payload) operator(pg_catalog.>) 67108864 then
        raise exception 'the payload has % bytes, the limit is 67108864', pg_catalog.octet_length(payload)
        using errcode = '23514', hint = 'store it elsewhere and publish a reference';
    elsif pg_catalog.octet_length(topic) operator(pg_catalog.>) 1024 then
        raise exception 'the topic has % bytes, the limit is 1024', pg_catalog.octet_length(topic) using errcode = '23514', hint = 'use a shorter one';
    elsif pg_catalog.octet_length(key) operator(pg_catalog.>) 1024 then
        raise exception 'the key has % bytes, the limit is 1024', pg_catalog.octet_length(key) using errcode = '23514', hint = 'use a hash of it';
    elsif pg_catalog.octet_length(id) operator(pg_catalog.>) 256 then
        raise exception 'the id has % bytes, the limit is 256', pg_catalog.octet_length(id) using errcode = '23514', hint = 'use a hash of it';
    end if;
    raise exception 'the headers are a JSON %, expected an object', pg_catalog.jsonb_typeof(headers)
    using errcode = '23514', hint = 'for example {"trace": "4bf92f35"}';
end $$;
-- +goose StatementEnd

-- create_outbox makes an outbox: a ring of segments behind one table. Errors:
-- 42P07 (duplicate_table) if it exists, 23514 for a name that cannot be used.
-- +goose StatementBegin
create function create_outbox(name text, segments int default 8, segment_bytes bigint default 134217728) returns void
language plpgsql set search_path from current as $$
declare
    seq_name  text := _q(format('_%s.seq', name));
    slot_name text := _q(format('_%s.slot', name));
    role      name;
begin
    if segments not between 2 and 1000 then
        raise exception 'segments is %, expected 2 to 1000', segments using errcode = '22023';
    end if;
    if segment_bytes < 65536 then
        raise exception 'segment_bytes is %, expected at least 65536', segment_bytes using errcode = '22023';
    end if;
    if exists (select from _outbox o where o.name = create_outbox.name) then
        raise exception 'the outbox % exists already', quote_literal(name) using errcode = '42P07';
    end if;
    insert into _outbox (name, uid, segment_bytes)
    values (name, substr(replace(gen_random_uuid()::text, '-', ''), 1, 12), segment_bytes);

    execute format('create sequence %s', seq_name);
    -- A sequence used as a register: setval moves it, pg_sequence_last_value
    -- reads it, without MVCC and without a dead row.
    execute format('create sequence %s minvalue 0', slot_name);
    perform setval(slot_name, 0);

    -- Defaults are evaluated in column order, and xid must come before seq: the
    -- bound in _cursor.low depends on it.
    execute format($ddl$
        create table %1$s (
            xid        xid8        not null default pg_current_xact_id(),
            seq        bigint      not null default nextval(%2$L),
            created_at timestamptz not null default clock_timestamp(),
            slot       smallint    not null default pg_sequence_last_value(%3$L)::smallint,
            id         text,
            key        text,
            topic      text        not null default '',
            headers    jsonb,
            payload    bytea       not null,
            constraint admitted check (%4$I._admit_message(id, key, topic, headers, payload))
        ) partition by list (slot)$ddl$,
        _q(name), seq_name, slot_name, current_schema());
    execute format('create index on %s (seq)', _q(name));
    execute format('create index on %s (xid, seq)', _q(name));
    for slot in 0 .. segments - 1 loop
        execute format('create table %s partition of %s for values in (%s)
                        with (autovacuum_enabled = false, toast.autovacuum_enabled = false)',
                       _q(format('_%s.%s', name, slot)), _q(name), slot);
    end loop;
    for role in select r.name from _relay_role r join pg_roles p on p.rolname = r.name loop
        perform _grant_relay_on(name, role);
    end loop;
    perform _own(name);
end $$;
-- +goose StatementEnd

-- drop_outbox removes an outbox with its messages, subscriptions and dead
-- letters. Error: 42P01 (undefined_table) if there is none.
-- +goose StatementBegin
create function drop_outbox(name text) returns void
language plpgsql set search_path from current as $$
begin
    delete from _outbox o where o.name = drop_outbox.name;
    if not found then
        raise exception 'there is no outbox %', quote_literal(name) using errcode = '42P01';
    end if;
    execute format('drop table %s', _q(name));
    execute format('drop sequence %s, %s', _q('_' || name || '.seq'), _q('_' || name || '.slot'));
end $$;
-- +goose StatementEnd

-- publish writes one message within the caller's transaction; a plain INSERT
-- into the outbox does the same and is faster. Errors: 42P01 for an unknown
-- outbox, 23514 for a field over its limit, 22021 for text with a NUL or invalid
-- UTF-8.
-- +goose StatementBegin
create function publish(outbox text, payload bytea, key text default null, topic text default '',
                        headers jsonb default null, id text default null) returns void
language plpgsql set search_path from current as $$
declare
    target text := format('%I.%I', current_schema(), outbox);
begin
    if to_regclass(target) is null then
        raise exception 'there is no outbox %', quote_literal(outbox)
        using errcode = '42P01', hint = 'create it with: penstock outbox create ' || quote_literal(outbox);
    end if;
    execute format('insert into %s (id, key, topic, headers, payload) values ($1, $2, $3, $4, $5)', target)
    using id, key, coalesce(topic, ''), headers, payload;
end $$;
-- +goose StatementEnd

-- The same for text and JSON, as UTF-8. Without these a string would be read as the
-- text form of bytea, in which a backslash begins an escape.
-- +goose StatementBegin
create function publish(outbox text, payload text, key text default null, topic text default '',
                        headers jsonb default null, id text default null) returns void
language sql set search_path from current as $$
    select publish(outbox, convert_to(payload, 'UTF8'), key, topic, headers, id)
$$;
-- +goose StatementEnd

-- +goose StatementBegin
create function publish(outbox text, payload jsonb, key text default null, topic text default '',
                        headers jsonb default null, id text default null) returns void
language sql set search_path from current as $$
    select publish(outbox, convert_to(payload::text, 'UTF8'), key, topic, headers, id)
$$;
-- +goose StatementEnd

-- drop_subscription removes a subscription with its cursor and dead letters; what
-- only it had not settled can then be reclaimed. Error: 42704 (undefined_object).
-- +goose StatementBegin
create function drop_subscription(outbox text, name text) returns void
language plpgsql set search_path from current as $$
begin
    delete from _subscription s where s.outbox = drop_subscription.outbox and s.name = drop_subscription.name;
    if not found then
        raise exception 'the outbox % has no subscription %', quote_literal(outbox), quote_literal(name) using errcode = '42704';
    end if;
end $$;
-- +goose StatementEnd

-- set_retention says how long, or how many bytes of, what every subscription has
-- settled stays in an outbox; null does not keep anything. Error: 42P01.
-- +goose StatementBegin
create function set_retention(outbox text, age interval, bytes bigint) returns void
language plpgsql set search_path from current as $$
begin
    update _outbox o set retain_age = age, retain_bytes = bytes where o.name = outbox;
    if not found then
        raise exception 'there is no outbox %', quote_literal(outbox) using errcode = '42P01';
    end if;
end $$;
-- +goose StatementEnd

-- grant_producer lets a role publish to one outbox and do nothing else: it can
-- insert the columns that belong to it, but neither read nor choose xid or seq.
-- +goose StatementBegin
create function grant_producer(outbox text, role name) returns void
language plpgsql set search_path from current as $$
begin
    execute format('grant usage on schema %I to %I', current_schema(), role);
    execute format('grant insert (id, key, topic, headers, payload) on table %s to %I', _q(outbox), role);
    execute format('grant usage on sequence %s to %I', _q('_' || outbox || '.seq'), role);
    execute format('grant select on sequence %s to %I', _q('_' || outbox || '.slot'), role);
    execute format('grant execute on function publish(text, bytea, text, text, jsonb, text), publish(text, text, text, text, jsonb, text),
                    publish(text, jsonb, text, text, jsonb, text) to %I', role);
end $$;
-- +goose StatementEnd

-- grant_relay lets a role run subscriptions of every outbox, now and later: read
-- messages, move cursors, reclaim what is settled. It can neither publish nor
-- change a message.
-- +goose StatementBegin
create function grant_relay(role name) returns void
language plpgsql set search_path from current as $$
declare
    outbox text;
begin
    insert into _relay_role (name) values (role) on conflict do nothing;
    execute format('grant usage on schema %I to %I', current_schema(), role);
    execute format('grant select on table _outbox, _subscription, _cursor, _dead_letter, _replay, _parked, _line, _migration to %I', role);
    execute format('grant insert on table _subscription, _cursor, _dead_letter, _replay, _parked, _line to %I', role);
    execute format('grant update, delete on table _dead_letter, _replay to %I', role);
    execute format('grant usage on sequence _cursor_n, _parked_p, _line_n to %I', role);
    execute format('grant select on sequence _cursor_slot, _parked_slot, _line_slot, _line_n to %I', role);
    execute format('grant execute on function _rotate(text, boolean), _reclaim(text, integer), _behind(text, integer), _reclaim_cursor(), _reclaim_lines(bigint), _reclaim_parked(bigint), _head(bigint), _segments(text) to %I', role);
    execute format('grant execute on function _write_cursor(bigint, bigint, text, bigint, pg_snapshot, bigint, pg_snapshot, bigint, bigint, bigint, bigint, timestamptz, bigint) to %I', role);
    for outbox in select o.name from _outbox o loop
        perform _grant_relay_on(outbox, role);
    end loop;
end $$;
-- +goose StatementEnd

-- _head is the cursor and lease of a subscription: a backward index probe. Volatile,
-- for a snapshot that is taken under its locks: with the caller's, it would find
-- nothing at all if it had waited for _reclaim_cursor, because TRUNCATE is not MVCC
-- and the copy of the head not visible yet.
-- +goose StatementBegin
create function _head(subscription bigint) returns setof _cursor
language sql volatile set search_path from current as $$
    select * from _cursor c where c.subscription = _head.subscription
     order by epoch desc, n desc limit 1
$$;
-- +goose StatementEnd

-- _write_cursor appends to the cursor log, which moves the cursor and extends the
-- lease; a lease of 0 gives it back. It returns the new n; null, and nothing is
-- written, if a later epoch exists or the subscription was dropped. With expected,
-- the head must still be that n: a write that a lost connection left under way on
-- the server comes to nothing once the holder has gone on without it.
--
-- A lease changes hands under the exclusive form of the lock. Without the shared
-- form here a holder whose lease has expired could write between the moment when
-- the next one reads the cursor and the moment when its epoch is visible: it would
-- be told that its messages are settled, and they would be sent again. The insert
-- must be a statement after the lock, for a snapshot taken under it.
-- +goose StatementBegin
create function _write_cursor(subscription bigint, epoch bigint, holder text, lease_us bigint, done pg_snapshot, low bigint,
                              upto pg_snapshot, upto_low bigint, pos bigint, settled bigint, system bigint, since timestamptz, expected bigint) returns bigint
language plpgsql volatile set search_path from current as $$
declare
    written bigint;
begin
    perform _read_committed();
    perform pg_advisory_xact_lock_shared(1885695596, subscription::int); -- leaseLock in lease.go
    insert into _cursor (subscription, epoch, holder, lease_until, done, low, upto, upto_low, pos, settled, system, since)
    select $1, $2, $3, clock_timestamp() + $4 * interval '1 microsecond', $5, $6, $7, $8, $9, $10, $11, $12
     where not exists (select from _cursor c where c.subscription = $1 and c.epoch > $2)
       and exists (select from _subscription s where s.id = $1)
       and (expected is null or (select h.n from _head($1) h) = expected)
    returning n into written;
    return written;
end $$;
-- +goose StatementEnd

-- _rotate moves the segment pointer to an empty segment and returns its slot, null
-- if it left the pointer alone: the current segment is not full (unless forced),
-- no other is empty, or another process is at it.
--
-- The ring does not grow. A writer that already holds its lock on the outbox does
-- not notice a partition that was attached since, and would fail.
-- +goose StatementBegin
create function _rotate(outbox text, force boolean) returns int
language plpgsql security definer set search_path from current as $$
declare
    slot_name regclass := _q('_' || outbox || '.slot')::regclass;
    current   int;
    target    int;
begin
    if not pg_try_advisory_xact_lock('_outbox'::regclass::oid::int, hashtext(outbox)) then
        return null;
    end if;
    current := pg_sequence_last_value(slot_name);
    if not force and pg_table_size(_q(format('_%s.%s', outbox, current))) <
                     (select segment_bytes from _outbox o where o.name = outbox) then
        return null;
    end if;
    select s.slot into target from _segments(outbox) s
     where pg_relation_size(s.oid) = 0 and s.slot <> current
     order by (s.slot < current), s.slot limit 1; -- the next one around
    if target is not null then
        perform setval(slot_name, target);
    end if;
    return target;
end $$;
-- +goose StatementEnd

-- +goose StatementBegin
create function _segments(outbox text) returns table (slot int, oid oid)
language sql stable set search_path from current as $$
    select substring(c.relname from '\.([0-9]+)$')::int, c.oid
      from pg_inherits i join pg_class c on c.oid = i.inhrelid
     where i.inhparent = _q(outbox)::regclass
$$;
-- +goose StatementEnd

-- _reclaim truncates one segment if every subscription has settled all of it and
-- no open transaction has written to it. It returns whether it did.
--
-- The lock shows that no writer is open; rows of one that committed just before
-- are seen by the probes, whose snapshots are taken under the lock. A writer that
-- read the pointer before it moved may still write here afterwards: readers look
-- into every segment, and the next reclaim finds it.
-- +goose StatementBegin
create function _reclaim(outbox text, slot int) returns boolean
language plpgsql security definer set search_path from current set lock_timeout = '20ms' as $$
declare
    segment text := _q(format('_%s.%s', outbox, slot));
begin
    perform _read_committed();
    -- One process at a time: two that have looked into the segment would each keep
    -- the other from locking it.
    if not pg_try_advisory_xact_lock('_outbox'::regclass::oid::int, hashtext(outbox))
       or slot = pg_sequence_last_value(_q('_' || outbox || '.slot')::regclass)
       or _needed(outbox, segment::regclass) then -- do not lock in vain
        return false;
    end if;
    execute format('lock table %s in access exclusive mode', segment);
    if _needed(outbox, segment::regclass) then
        return false;
    end if;
    execute format('truncate table %s', segment);
    return true;
exception when lock_not_available then
    return false;
end $$;
-- +goose StatementEnd

-- _unsettled_in says whether the segment holds a row that the subscription's
-- durable cursor does not cover. Two index probes: rows of transactions that were
-- in flight (by xid), and rows above the bound (by seq; the bound says that no
-- younger transaction has a seq below it).
-- +goose StatementBegin
create function _unsettled_in(segment regclass, subscription bigint) returns boolean
language plpgsql volatile set search_path from current
set enable_seqscan = off set enable_bitmapscan = off as $$
declare
    c     _cursor;
    upto  pg_snapshot;
    pos   bigint;
    bound bigint;
    found boolean;
begin
    select * into c from _head(subscription);
    if c.subscription is null or c.system <> (select system_identifier from pg_control_system()) then
        return true;
    end if;
    upto  := coalesce(c.upto, c.done);
    pos   := coalesce(c.pos, 9223372036854775807);
    bound := least(pos, coalesce(c.upto_low, c.low));
    execute format('select exists (select from %1$s e where e.xid = any ($1))
                        or exists (select from %1$s e where e.seq > $2
                                      and not pg_visible_in_snapshot(e.xid, $3)
                                      and not (pg_visible_in_snapshot(e.xid, $4) and e.seq <= $5))', segment)
       into found
      using array(select pg_snapshot_xip(upto)), bound, c.done, upto, pos;
    return found;
end $$;
-- +goose StatementEnd

-- Without a subscription nobody has settled anything.
create function _unsettled_by_any(outbox text, segment regclass) returns boolean
language sql volatile set search_path from current
return (select coalesce(bool_or(_unsettled_in(segment, s.id)), true)
          from _subscription s where s.outbox = _unsettled_by_any.outbox);

-- _retained says whether a segment's settled messages are kept for a replay: because
-- of the outbox's retention, or because one is under way. By size the oldest segment
-- goes first: one that has an older row beside it stays.
-- +goose StatementBegin
create function _retained(outbox text, segment regclass) returns boolean
language plpgsql volatile set search_path from current
set enable_seqscan = off set enable_bitmapscan = off as $$
declare
    o      _outbox := (select o from _outbox o where o.name = outbox);
    first  bigint;
    last   bigint;
    newest timestamptz;
    older  boolean;
begin
    if o.retain_age is null and o.retain_bytes is null and not exists (select from _replay r where r.outbox = _retained.outbox) then
        return false;
    end if;
    execute format('select seq from %s order by seq limit 1', segment) into first;
    execute format('select seq, created_at from %s order by seq desc limit 1', segment) into last, newest;
    if first is null then
        return false;
    end if;
    if exists (select from _replay r where r.outbox = _retained.outbox and r.pos < last and r.to_seq >= first) then
        return true;
    end if;
    execute format('select exists (select from %s e where e.seq < $1)', _q(outbox)) into older using first;
    return (o.retain_age is not null or o.retain_bytes is not null)
       and (o.retain_age is null or newest > clock_timestamp() - o.retain_age)
       and (o.retain_bytes is null or older or o.retain_bytes >= (select sum(pg_total_relation_size(s.oid)) from _segments(outbox) s));
end $$;
-- +goose StatementEnd

create function _needed(outbox text, segment regclass) returns boolean
language sql volatile set search_path from current
return _unsettled_by_any(outbox, segment) or _retained(outbox, segment);

-- _behind says whether a segment cannot be truncated yet.
create function _behind(outbox text, slot int) returns boolean
language sql volatile security definer set search_path from current
return _needed(outbox, _q(format('_%s.%s', outbox, slot))::regclass);

-- _reclaim_cursor keeps the cursor log small: it moves the pointer to the other
-- segment once the current one is large, carries the heads over and truncates.
-- +goose StatementBegin
create function _reclaim_cursor() returns boolean
language plpgsql security definer set search_path from current set lock_timeout = '20ms' as $$
declare
    current int;
    sealed  int;
begin
    perform _read_committed();
    if not pg_try_advisory_xact_lock('_cursor'::regclass::oid::int, 0) then
        return false;
    end if;
    current := pg_sequence_last_value('_cursor_slot');
    sealed := 1 - current;
    if pg_relation_size(_q('_cursor_' || sealed)) = 0 then
        if pg_relation_size(_q('_cursor_' || current)) < 4194304 then
            return false;
        end if;
        perform setval('_cursor_slot', sealed);
        sealed := current;
    end if;
    execute format('lock table %s in access exclusive mode', _q('_cursor_' || sealed));
    -- A copy keeps its (epoch, n), so a head that was written meanwhile stays one.
    insert into _cursor (subscription, epoch, n, at, lease_until, since, low, upto_low, pos, settled, system, holder, done, upto, slot)
    select h.subscription, h.epoch, h.n, h.at, h.lease_until, h.since, h.low, h.upto_low, h.pos, h.settled, h.system, h.holder, h.done, h.upto, 1 - sealed
      from _subscription s, lateral _head(s.id) h
     where h.slot = sealed;
    execute format('truncate table %s', _q('_cursor_' || sealed));
    return true;
exception when lock_not_available then
    return false;
end $$;
-- +goose StatementEnd

-- +goose Down
select 'Penstock does not migrate down: drop the schema instead';
