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
