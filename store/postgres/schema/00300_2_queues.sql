-- Queues: jobs for competing consumers.

create table _queue (
    id            integer generated always as identity primary key,
    name          text not null unique check (octet_length(name) between 1 and 48 and left(name, 1) <> '_'),
    lifo          boolean not null,
    segment_bytes bigint not null,
    max_attempts  integer not null default 25 check (max_attempts > 0),
    created_at    timestamptz not null default now(),
    paused        boolean not null default false,
    max_running   integer check (max_running > 0),
    dedup_window  interval not null default '1 hour' check (dedup_window > interval '0'),
    keep_done     interval,
    keep_done_bytes bigint not null default 1073741824,
    done_since    timestamptz[],
    rate          integer,
    per           interval,
    burst         integer
);

-- The segments of each queue that are in use, in the order in which they came into use. Their pointer, the
-- sequence called ring, holds turn * 1024 + slot. A segment leaves the list before it is truncated, see
-- functions/queue_ring.sql and maintenance.sql.
create table _segment (
    queue   integer not null references _queue on delete cascade,
    slot    smallint not null,
    turn    bigint not null,
    writers text[],
    looked  timestamptz,
    rest    integer,
    leaving boolean not null default false,
    job     tid,
    retired timestamptz,
    again   timestamptz,
    trouble text,
    primary key (queue, slot)
);

-- A job as a dequeue returns it. id stays with a job through its retries; attempt is 1
-- the first time.
create type job as (
    id         bigint,
    key        text,
    group_key  text,
    priority   smallint,
    attempt    integer,
    created_at timestamptz,
    headers    jsonb,
    payload    bytea
);

-- A job as a claim returns it: with its lease.
create type leased_job as (
    id          bigint,
    key         text,
    group_key   text,
    priority    smallint,
    attempt     integer,
    created_at  timestamptz,
    headers     jsonb,
    payload     bytea,
    lease       bigint,
    lease_until timestamptz
);

create sequence _skip_map_n;

-- The skip maps: where the jobs of a group and priority may still be. Insert-only; the row with the highest n is
-- true. A transaction that takes jobs writes a skip map, so both commit or both roll back.
create table _skip_map (
    queue    integer not null,
    n        bigint not null default nextval('_skip_map_n'),
    base     bigint not null,
    seen     bigint not null,
    xid      xid8 not null,
    turn     bigint not null,
    slot     smallint not null default (pg_sequence_last_value('_skip_map_slot') % 2)::smallint,
    priority smallint not null,
    group_key text collate "C" not null,
    lo       bigint[] not null,
    hi       bigint[] not null,
    pending  xid8[] not null,
    slots    smallint[] not null
) partition by list (slot);

create index on _skip_map (queue, group_key, priority, n);

-- A row makes a queue's maintenance run when the transaction that wrote it commits. Maintenance
-- locks tables until its transaction ends, and a caller's transaction may last long.
create table _maintenance (
    slot  smallint not null default (pg_sequence_last_value('_maintenance_slot') % 2)::smallint,
    queue integer not null,
    until timestamptz -- when the leases of the claim that wrote the row end, see _maintain_at_commit
) partition by list (slot);

-- Jobs: leases, retries, delays, keys. A job is in exactly one place at a time, and moves
-- by a DELETE and an INSERT in one transaction, see functions/jobs.sql.

create sequence _lease_n;

-- One job of a claim of several. Such a claim is one row of _lease if its caller acks many at a time, see
-- functions/lease.sql. The row has 256 places, and the first holds no job. The row's number is that of the first place. It
-- is odd, and grows by 2 from place to place. A lease with a separate row has an even number, unless an older version made
-- it or it was one of several.
create type _claimed as (
    lease      bigint,
    id         bigint,
    created_at timestamptz,
    attempt    integer,
    headers    jsonb,
    payload    bytea,
    failures   jsonb
);

-- The claimed jobs. An extend, a report, an ack of one of several jobs, and maintenance that makes a claim's leases longer
-- update a row. The last 20 bits of a lease's number hold a random number. A sequence goes back when a failover loses the
-- last writes, and a late ack from before the failover must not end another worker's job. The number still grows, and the
-- first eight billion are exact in a double.
create table _lease (
    lease       bigint not null default (nextval('_lease_n') << 20) | (floor(random() * 524288)::bigint << 1),
    queue       integer not null,
    attempt     integer,
    lease_until timestamptz not null,
    id          bigint,
    created_at  timestamptz,
    priority    smallint not null,
    slot        smallint not null default (pg_sequence_last_value('_lease_slot') % 2)::smallint,
    worker      text not null,
    group_key   text not null,
    key         text collate "C",
    headers     jsonb,
    payload     bytea,
    failures    jsonb,
    done        bit(256),
    jobs        _claimed[],
    claimed_at  timestamptz,
    report      jsonb,
    listed      boolean -- in _group_state
) partition by list (slot);

alter table _lease alter column jobs set storage external; -- to compress them takes longer than to write them

create index on _lease (queue, lease_until);

create index on _lease (queue, key, lease) where key is not null;

-- Jobs that may not run yet: until due, or, if that is infinity, until an earlier job of
-- their key has ended.
create table _scheduled (
    id         bigint not null,
    queue      integer not null,
    attempt    integer not null,
    due        timestamptz not null,
    created_at timestamptz not null,
    priority   smallint not null,
    slot       smallint not null default (pg_sequence_last_value('_scheduled_slot') % 2)::smallint,
    group_key  text not null,
    key        text collate "C",
    headers    jsonb,
    payload    bytea not null,
    failures   jsonb
) partition by list (slot);

create index on _scheduled (queue, due, id);

-- The jobs of a key that are before others, or wait for others: those that are only delayed are neither, and no search steps
-- over them.
create index on _scheduled (queue, key, id) where key is not null and (attempt <> 0 or due = 'infinity');

create index on _scheduled (queue, id);

create table _dedup (
    queue     integer not null,
    id        bigint not null,        -- the job that came first
    at        timestamptz not null default clock_timestamp(),
    slot      smallint not null default (pg_sequence_last_value('_dedup_slot') % 2)::smallint,
    dedup_key text collate "C" not null
) partition by list (slot);

create index on _dedup (queue, dedup_key, at);

create table _dead_job (
    queue      integer not null references _queue on delete cascade,
    id         bigint not null,
    attempt    integer not null,
    created_at timestamptz not null,
    died_at    timestamptz not null default clock_timestamp(),
    priority   smallint not null,
    group_key  text not null,
    key        text,
    headers    jsonb,
    payload    bytea not null,
    failures   jsonb not null,
    primary key (queue, id)
);

-- An operator, see grant_operator, sees the dead letters of his queues.
alter table _dead_job enable row level security;

-- A unique job that has not ended, as _unended finds it: state is ring, scheduled or leased.
create type _unique_job as (
    id         bigint,
    key        text,
    state      text,
    created_at timestamptz,
    place      regclass,
    at         tid
);

-- Periodic jobs.

create table _schedule (
    queue     integer not null references _queue on delete cascade,
    name      text not null check (octet_length(name) between 1 and 128),
    cron      text not null,
    next      timestamptz not null,
    priority  smallint not null check (priority between -16 and 15),
    group_key text not null check (octet_length(group_key) <= 256),
    key       text check (octet_length(key) <= 1024),
    dedup_key text check (octet_length(dedup_key) <= 256),
    headers   jsonb check (jsonb_typeof(headers) = 'object'),
    payload   bytea not null check (octet_length(payload) <= 67108864),
    paused    boolean not null default false,
    skip_overlap boolean not null default false,
    last_job  bigint,
    last_group text, -- where last_job was enqueued
    last_priority smallint,
    primary key (queue, name)
);
