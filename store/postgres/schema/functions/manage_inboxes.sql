-- Functions of owners of inboxes: create, set up, drop, grant.

-- _inbox_of returns the inbox of a consumer, or raises 42P01.
create or replace function _inbox_of(consumer text) returns _inbox
language plpgsql stable set search_path from current as $$ declare found_inbox _inbox;
begin
    select * into found_inbox from _inbox i where i.consumer = _inbox_of.consumer;
    if not found then
        raise exception 'there is no inbox of %', coalesce(quote_literal(consumer), 'null')
        using errcode = '42P01', hint = format('create it with: select %s.create_inbox(%s)', quote_ident(current_schema()), coalesce(quote_literal(consumer), 'NAME'));
    end if;
    return found_inbox;
end $$;

create or replace function create_inbox(consumer text, keep interval default '7 days') returns void
language plpgsql set search_path from current as $$ declare
    made     int;
    now_ms   constant bigint := extract(epoch from clock_timestamp()) * 1000;
begin
    if (octet_length(consumer) between 1 and 48) is not true then
        raise exception 'the consumer''s name has % bytes, expected 1 to 48', coalesce(octet_length(consumer), 0)
        using errcode = '23514', hint = 'name the consumer, for example ''billing''';
    end if;
    perform _check_keep(keep);
    perform pg_advisory_xact_lock('_inbox'::regclass::oid::int, 0); -- the dispatch functions are made by one at a time
    if exists (select from _inbox i where i.consumer = create_inbox.consumer) then
        raise exception 'the inbox of % exists already', quote_literal(consumer)
        using errcode = '42P07', hint = format('to change how long it keeps ids: select %s.set_inbox(%L, %L)', quote_ident(current_schema()), consumer, keep);
    end if;
    insert into _inbox (consumer, keep) values (consumer, keep) returning id into made;
    -- Registers, see _make_register. since: when the turn settled, in ms;
    -- next: when maintenance is due; holds: 1 once a message was held; low and so on: see advance.
    perform _make_register(_inbox_name(made, r.name), r.value)
       from (values ('ring', 4::bigint * 2), ('since', now_ms), ('next', now_ms), ('holds', 0::bigint),
                    ('low', now_ms), ('candidate', 0::bigint), ('epoch', 1::bigint)) r(name, value);
    execute format('create sequence %s', _inbox_name(made, 'n'));
    for slot in 0 .. 3 loop
        -- held is vacuumed: rows are deleted as they are released.
        execute format($ddl$
            create table %1$s (id text collate "C" primary key) with (autovacuum_enabled = false);
            create table %2$s (
                id       text collate "C" primary key,
                previous text collate "C" not null,
                key      text not null,
                at       timestamptz not null default clock_timestamp(),
                due      timestamptz not null,
                headers  jsonb,
                payload  bytea not null);
            create index on %2$s (previous); create index on %2$s (due);
            create table %3$s (
                key    text collate "C" not null,
                n      bigint not null default nextval(%5$L),
                id     text collate "C" not null,
                behind text[] collate "C",
                primary key (key, n)) with (autovacuum_enabled = false);
            create table %4$s (
                id        text collate "C" primary key,
                key       text not null,
                next      text collate "C",
                at        timestamptz not null default clock_timestamp(),
                discarded boolean not null default false) with (autovacuum_enabled = false)$ddl$,
            _inbox_name(made, 'seen.' || slot), _inbox_name(made, 'held.' || slot), _inbox_name(made, 'heads.' || slot),
            _inbox_name(made, 'gaps.' || slot), _inbox_name(made, 'n'));
    end loop;
    perform _define_inbox(made);
    perform _keep_hashes(array(select p.oid from _own_functions('_inbox.' || made) p));
    perform _own('_inbox.' || made);
    perform _dispatch_inboxes();
end $$;

comment on function create_inbox is 'Makes an inbox for a consumer. Ids are known for at least keep after the transaction that received them, and for up to half as long again. Errors: 42P07 (duplicate_table) if there is one, 22023, 23514.';

create or replace function set_inbox(consumer text, keep interval) returns void
language plpgsql set search_path from current as $$ declare i _inbox := _inbox_of(consumer);
begin
    perform _check_keep(keep);
    update _inbox x set keep = set_inbox.keep where x.id = i.id;
end $$;

comment on function set_inbox is 'Changes how long ids are known; a longer time applies to ids that come after it. Errors: 42P01, 22023.';

create or replace function drop_inbox(consumer text) returns void
language plpgsql set search_path from current set lock_timeout = '50ms' as $$ declare i _inbox;
begin
    loop -- as drop_queue
        begin
            perform pg_advisory_xact_lock('_inbox'::regclass::oid::int, 0);
            i := _inbox_of(consumer);
            perform _forget_hashes(array(select p.oid from _own_functions('_inbox.' || i.id) p));
            execute (select 'drop function ' || string_agg(p.oid::regprocedure::text, ', ') from _own_functions('_inbox.' || i.id) p);
            execute (select string_agg(format('drop %s %s', case c.relkind when 'r' then 'table' else 'sequence' end, c.oid::regclass), '; '
                                       order by c.relkind desc) -- tables first: their defaults use sequences
                       from pg_class c
                      where c.relnamespace = quote_ident(current_schema())::regnamespace and c.relname like format($re$\_\_inbox.%s.%%$re$, i.id) and c.relkind in ('r', 'S'));
            delete from _inbox x where x.id = i.id;
            perform _dispatch_inboxes();
            return;
        exception when lock_not_available then
            perform _pause_drop();
        end;
    end loop;
end $$;

comment on function drop_inbox is 'Removes an inbox, with the messages that it holds. Error: 42P01.';

create or replace function grant_consumer(consumer text, role name) returns void
language plpgsql set search_path from current as $$ declare i _inbox := _inbox_of(consumer);
begin
    perform _grant_own('_inbox.' || i.id, '{first,first_of,in_order,due,maintain}', role);
end $$;

comment on function grant_consumer is 'Lets a role use one inbox and do nothing else. Error: 42P01.';
