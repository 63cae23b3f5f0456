-- Making, keeping and dropping outboxes, and the roles that write to and read them.

-- _make_register makes a sequence that is used as a register: setval moves it, pg_sequence_last_value
-- reads it, without MVCC and without a dead row.
create or replace function _make_register(name text, value bigint) returns void
language plpgsql set search_path from current as $$ begin
    execute format('create sequence %s minvalue 0', name);
    perform setval(name, value);
end $$;

create or replace function create_outbox(name text, segments int default 8, segment_bytes bigint default 134217728) returns void
language plpgsql set search_path from current as $$ declare
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
    if exists (select from _queue q where q.name = create_outbox.name) then
        raise exception 'a queue has the name %', quote_literal(name) using errcode = '42P07', hint = 'outboxes and queues share their names: choose another';
    end if;
    insert into _outbox (name, uid, segment_bytes)
    values (name, translate(encode(substr(uuid_send(gen_random_uuid()), 1, 3), 'base64'), '+/', 'Aa'), segment_bytes);

    perform _make_register(slot_name, 0);
    -- Defaults are evaluated in column order, and xid must come before seq: the
    -- bound in _cursor.low depends on it. created_at is part of the message's id.
    execute format($ddl$
        create sequence %2$s;
        create table %1$s (
            xid        xid8        not null default pg_current_xact_id(),
            seq        bigint      not null default nextval(%2$L),
            created_at timestamptz not null default clock_timestamp(),
            slot       smallint    not null default pg_sequence_last_value(%3$L)::smallint,
            id         text,
            key        text,
            topic      text        not null default '',
            headers    jsonb,
            payload    bytea       not null
        ) partition by list (slot);
        create index on %1$s (seq); create index on %1$s (xid, seq)$ddl$, _q(name), seq_name, slot_name);
    perform _validate_by(name, '_validate_message()');
    for slot in 0 .. segments - 1 loop
        execute format($ddl$
            create table %1$s partition of %2$s for values in (%3$s) with (autovacuum_enabled = false, toast.autovacuum_enabled = false);
            alter table %1$s replica identity full $ddl$, -- for operators who change a message by hand
            _q(format('_%s.%s', name, slot)), _q(name), slot);
    end loop;
    for role in select r from _relay_roles() r loop perform _grant_relay_on(name, role); end loop;
    perform _own(name);
end $$;

comment on function create_outbox is 'Makes an outbox: a ring of segments behind one table. Errors: 42P07 (duplicate_table) if it exists, 23514 for a name that cannot be used.';

create or replace function drop_outbox(name text) returns void
language plpgsql set search_path from current set lock_timeout = '50ms' as $$ begin
    loop -- as drop_queue
        begin
            delete from _outbox o where o.name = drop_outbox.name;
            if not found then raise exception 'there is no outbox %', quote_literal(name) using errcode = '42P01', hint = 'penstock outbox list shows all'; end if;
            execute format('drop table %s; drop sequence %s, %s', _q(name), _q('_' || name || '.seq'), _q('_' || name || '.slot'));
            return;
        exception when lock_not_available then
            perform _pause_drop();
        end;
    end loop;
end $$;

comment on function drop_outbox is 'Removes an outbox with its messages, subscriptions and dead letters. Error: 42P01 (undefined_table) if there is none.';

create or replace function drop_subscription(outbox text, name text) returns void
language plpgsql set search_path from current as $$ begin
    delete from _subscription s where s.outbox = drop_subscription.outbox and s.name = drop_subscription.name;
    if not found then
        raise exception 'the outbox % has no subscription %', quote_literal(outbox), quote_literal(name) using errcode = '42704';
    end if;
end $$;

comment on function drop_subscription is 'Removes a subscription with its cursor and dead letters. Messages that only it had not settled can then be reclaimed. Error: 42704 (undefined_object).';

create or replace function set_retention(outbox text, age interval, bytes bigint) returns void
language plpgsql set search_path from current as $$ begin
    if age > interval '1000 years' or age < interval '0' then
        raise exception 'the age is %, expected up to 1000 years', age using errcode = '22023', hint = 'null keeps nothing for its age';
    elsif bytes < 0 then
        raise exception 'the bytes are %, expected 0 or more', bytes using errcode = '22023', hint = 'null keeps nothing for its size';
    end if;
    update _outbox o set retain_age = age, retain_bytes = bytes where o.name = outbox;
    if not found then raise exception 'there is no outbox %', quote_literal(outbox) using errcode = '42P01', hint = 'penstock outbox list shows all'; end if;
end $$;

comment on function set_retention is 'Sets how long an outbox keeps messages that every subscription has settled, and up to how many bytes; null for both keeps none. Errors: 42P01, 22023.';

create or replace function grant_producer(outbox text, role name) returns void
language plpgsql set search_path from current as $$ begin
    execute format($ddl$
        grant usage on schema %2$I to %1$I;
        grant insert (id, key, topic, headers, payload) on table %3$s to %1$I;
        grant usage on sequence %4$s to %1$I;
        grant select on sequence %5$s to %1$I;
        grant execute on function publish_bytes(text, bytea, text, text, jsonb, text), publish(text, text, text, text, jsonb, text),
                                  publish(text, jsonb, text, text, jsonb, text) to %1$I$ddl$,
        role, current_schema(), _q(outbox), _q('_' || outbox || '.seq'), _q('_' || outbox || '.slot'));
end $$;

comment on function grant_producer is 'Lets a role publish to one outbox and do nothing else: it can insert the columns that belong to it, but neither read nor choose xid or seq.';

create or replace function grant_relay(role name) returns void
language plpgsql set search_path from current as $$ declare outbox text;
begin
    execute format($ddl$
        grant usage on schema %2$I to %1$I;
        grant select on table _outbox, _subscription, _cursor, _dead_letter, _replay, _retry, _parked, _parked_key, _migration to %1$I;
        grant insert on table _subscription, _cursor, _dead_letter, _replay, _retry, _parked, _parked_key to %1$I;
        grant update, delete on table _dead_letter, _replay, _retry to %1$I;
        grant usage on sequence _cursor_n, _parked_p, _parked_key_n to %1$I;
        grant select on sequence _cursor_slot, _parked_slot, _parked_key_slot, _parked_key_n to %1$I;
        grant execute on function _rotate(text, boolean), _reclaim(text, integer), _behind(text, integer), _holders(text, integer), _reclaim_cursor(), _reclaim_parked_keys(bigint),
                                  _reclaim_parked(bigint), _report_sink(bigint, bigint, timestamptz, text), _take_samples(), _subscription_samples(interval) to %1$I$ddl$,
        role, current_schema());
    for outbox in select o.name from _outbox o loop perform _grant_relay_on(outbox, role); end loop;
end $$;

comment on function grant_relay is 'Lets a role run subscriptions of every outbox, now and later: read messages, move cursors, reclaim space. It can neither publish nor change a message.';

-- _relay_roles returns the roles that grant_relay has given its rights, and that still have them.
create or replace function _relay_roles() returns setof name
language sql stable set search_path from current as $$
    select distinct r.rolname from pg_class c cross join aclexplode(c.relacl) a join pg_roles r on r.oid = a.grantee
     where c.oid = '_cursor'::regclass and a.privilege_type = 'INSERT' and a.grantee <> c.relowner $$;

-- _grant_relay_on grants the rights of grant_relay on one outbox.
create or replace function _grant_relay_on(outbox text, role name) returns void
language plpgsql set search_path from current as $$ begin
    execute format('grant select on table %1$s to %4$I; grant select on sequence %2$s, %3$s to %4$I', _q(outbox), _q('_' || outbox || '.seq'), _q('_' || outbox || '.slot'), role);
end $$;
