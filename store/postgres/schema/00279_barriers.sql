-- Barriers: jobs that hold one, and jobs that wait for some.

create sequence _barrier_n;
create sequence _barrier_slot minvalue 0 maxvalue 3;
select setval('_barrier_slot', 0);
insert into _pair (name) values ('_barrier');

-- Insert-only, see functions/barriers.sql.
create table _barrier (
    barrier bigint not null,
    n       bigint not null default nextval('_barrier_n'),
    xid     xid8 not null default pg_current_xact_id(),
    running bigint,
    queue   integer not null,
    dead    integer,
    part    smallint not null,
    slot    smallint not null default (pg_sequence_last_value('_barrier_slot') % 2)::smallint
) partition by list (slot);

create index on _barrier (barrier, part, n);

create index on _barrier (xid, n);

do $$
begin
    for slot in 0 .. 1 loop
        execute format('create table _barrier_%1$s partition of _barrier for values in (%1$s) with (autovacuum_enabled = false)', slot);
        execute format('alter table _barrier_%s replica identity full', slot); -- for a publication of all tables
    end loop;
end $$;

drop function if exists enqueue_bytes(text, bytea, text, text, int, timestamptz, text, jsonb, text, text, text, interval, int, interval, timestamptz);
drop function if exists enqueue(text, text, text, text, int, timestamptz, text, jsonb, text, text, text, interval, int, interval, timestamptz);
drop function if exists enqueue(text, jsonb, text, text, int, timestamptz, text, jsonb, text, text, text, interval, int, interval, timestamptz);
drop function if exists enqueue_many_bytes(text, bytea[], text[], text[], int[], timestamptz[], text[], jsonb[], text[], text[], text, interval, int, interval, timestamptz);
drop function if exists enqueue_many(text, text[], text[], text[], int[], timestamptz[], text[], jsonb[], text[], text[], text, interval, int, interval, timestamptz);
drop function if exists _with_options(jsonb, text, text, text, interval, int, interval, timestamptz);
