-- Outboxes and their subscriptions.

create table _outbox (
    name          text primary key check (octet_length(name) between 1 and 48 and left(name, 1) <> '_'),
    uid           text not null,                     -- first part of every derived message id
    segment_bytes bigint not null default 134217728, -- rotate when the current segment, with TOAST, is this large
    retain_age    interval,                          -- for how long settled messages are kept
    retain_bytes  bigint,                            -- how large the outbox may be while it keeps settled messages
    created_at    timestamptz not null default now()
);

create table _subscription (
    id         bigint generated always as identity primary key,
    outbox     text not null references _outbox on delete cascade,
    name       text not null check (octet_length(name) between 1 and 128),
    created_at timestamptz not null default now(),
    sink_epoch bigint,      -- the holder of this epoch reported sink_down and sink_error, see _report_sink
    sink_down  timestamptz, -- since when the sink takes nothing; null: it takes messages
    sink_error text check (octet_length(sink_error) <= 500),
    unique (outbox, name)
);

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

-- Requests to deliver settled messages again: those that the durable cursor covered at
-- the request, by seq. One row per request, updated once per settled page.
create table _replay (
    id           bigint generated always as identity primary key,
    subscription bigint not null references _subscription on delete cascade,
    outbox       text not null,
    pos          bigint not null,      -- up to this seq the messages have been delivered again
    to_seq       bigint not null,
    created_from timestamptz not null,
    created_to   timestamptz not null,
    done         pg_snapshot not null, -- as in _cursor
    upto         pg_snapshot not null,
    upto_pos     bigint not null,
    system       bigint not null,
    low          bigint not null default 0, -- as in _cursor; after a restore into a cluster with lower xids rows up to it are settled whatever their xid
    ahead        int8multirange not null default '{}', -- of the replay, as in _cursor
    besides      int8multirange not null default '{}', -- messages that were settled ahead at the request, by seq
    others       int8multirange not null default '{}'  -- messages that were parked or dead letters at the request: the replay leaves them out
);

create index on _replay (subscription, id);

-- Rings of two segments. A sequence says which one is written to. The remaining rows of the other are carried
-- over, and it is truncated, also under a pinned snapshot. Those of a queue's jobs hold 2 more while the
-- other one is listed, that is, read, see functions/pairs.sql. Their tables' partitions are made at the end.
create sequence _cursor_slot minvalue 0 maxvalue 1;
create sequence _parked_slot minvalue 0 maxvalue 1;
create sequence _parked_key_slot minvalue 0 maxvalue 1;
create sequence _skip_map_slot minvalue 0;
create sequence _lease_slot minvalue 0 maxvalue 3;
create sequence _scheduled_slot minvalue 0 maxvalue 3;
create sequence _dedup_slot minvalue 0 maxvalue 3;
create sequence _maintenance_slot minvalue 0 maxvalue 3;

select setval('_' || ring || '_slot', 0) from unnest('{cursor,parked,parked_key,skip_map,lease,scheduled,dedup,maintenance}'::text[]) ring;

-- The state of each ring that its sequence does not hold.
create table _pair (
    name    text primary key,
    retired timestamptz, -- since when the other segment is not read
    again   timestamptz, -- its lock is not tried before this time
    writers text[],      -- the virtual transactions that may still commit rows into the other segment; null: not looked up yet
    trouble text         -- why its maintenance failed last
);

insert into _pair (name) values ('_skip_map'), ('_lease'), ('_scheduled'), ('_dedup'), ('_maintenance');

-- Cursors and leases: how far each subscription is, and who may move it.

create sequence _cursor_n;

-- The cursor log, insert-only. The row with the highest (epoch, n) of a subscription is
-- its cursor and its lease at once. A relay that lost the lease writes rows of a lower
-- epoch, which are never read. An updated row would be correct as well, but under a pinned
-- snapshot its dead versions pile up, and each read steps over them.
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
    upto         pg_snapshot,          -- null unless a backlog is being paged through
    timeline     integer,              -- of the server's log, which a failover or a recovery changes; null: not known
    ahead        int8multirange not null default '{}' -- a slow sink's messages that are settled behind others that are not, by seq
) partition by list (slot);

create index on _cursor (subscription, epoch, n);

-- One value per settling statement; its messages get the numbers that follow.
create sequence _parked_p increment by 1048576 minvalue 1048576;

create sequence _parked_key_n;

-- The parked messages. A parked key is the messages of one key ('k' and the key), or one
-- message that is sent out of order ('s' and its seq). Its messages are in order of p, the
-- order in which they were parked.
create table _parked (
    subscription bigint not null,
    p            bigint not null,
    seq          bigint not null,
    created_at   timestamptz not null,
    slot         smallint not null default pg_sequence_last_value('_parked_slot')::smallint,
    parked_key   text collate "C" not null, -- with this collation an index on it outlives a change of locales
    id           text,
    key          text,
    topic        text not null,
    headers      jsonb,
    payload      bytea not null
) partition by list (slot);

create index on _parked (subscription, parked_key, p);

-- The states of parked keys: of each, the row with the highest n is true. A parked key begins
-- with the message at head; messages below it have been delivered or are dead letters.
create table _parked_key (
    subscription bigint not null,
    n            bigint not null default nextval('_parked_key_n'),
    due          timestamptz not null, -- infinity while it is held
    head         bigint,               -- a p; null: the parked key is over
    held         bigint,               -- seq of the dead letter that holds it
    failed_since timestamptz,
    attempt      integer not null,     -- how many attempts the head has had
    slot         smallint not null default pg_sequence_last_value('_parked_key_slot')::smallint,
    parked_key   text collate "C" not null, -- with this collation an index on it outlives a change of locales
    failures     jsonb                 -- of the head
) partition by list (slot);

create index on _parked_key (subscription, parked_key, n);

create index on _parked_key (subscription, due, n) where head is not null;

-- Parked keys that an operator asked to try at once: one, or all if parked_key is empty, as far as their
-- latest state has at most this n. The holder of the lease makes them due; only the holder writes parked keys.
create table _retry (
    subscription bigint not null references _subscription on delete cascade,
    parked_key   text collate "C" not null,
    n            bigint not null,
    primary key (subscription, parked_key)
);
