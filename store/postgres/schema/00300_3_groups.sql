-- Policies of groups.

-- The policy of a group, and that of all groups without one, under *.
create table _group (
    queue       integer not null references _queue on delete cascade,
    max_running integer check (max_running > 0),
    rate        integer check (rate > 0),
    per         interval,
    burst       integer check (burst > 0),
    weight      integer check (weight between 1 and 100),
    group_key   text collate "C" not null check (octet_length(group_key) <= 256),
    primary key (queue, group_key)
);

create sequence _group_state_n;
create sequence _group_state_slot minvalue 0 maxvalue 3;
select setval('_group_state_slot', 0);
insert into _pair (name) values ('_group_state');

-- The jobs that were admitted of each group, and holds of groups. Insert-only; the row with the highest n is true. Who writes one holds
-- the lock of the group, see _lock_group.
create table _group_state (
    queue      integer not null,
    n          bigint not null default nextval('_group_state_n'),
    next_at    timestamptz,
    held_until timestamptz,
    since      bigint,
    slot       smallint not null default (pg_sequence_last_value('_group_state_slot') % 2)::smallint,
    group_key  text collate "C" not null,
    reason     text,
    leases     bigint[] not null default '{}'
) partition by list (slot);

create index on _group_state (queue, group_key, n);
