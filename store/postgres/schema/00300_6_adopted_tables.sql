-- Tables of others that are relayed as they are, see adopt/DESIGN.md.

create table _adopt_subscription (
    id         bigint generated always as identity primary key,
    name       text not null unique check (octet_length(name) between 1 and 128),
    source     text not null, -- the table, qualified and quoted
    mark       text not null, -- the column that marks delivered rows; '' where rows leave the table
    created_at timestamptz not null default now()
);

create index on _adopt_subscription (source);

create sequence _adopt_n;

-- The log of low-water marks and leases: of a subscription the row with the highest
-- (epoch, n) is true. Insert-only, as _cursor is, and for the same reason. Old rows
-- are deleted in bulk, and lie where no query reads.
create table _adopt_log (
    subscription bigint not null,
    epoch        bigint not null,
    n            bigint not null default nextval('_adopt_n'),
    at           timestamptz not null default clock_timestamp(),
    lease_until  timestamptz not null,
    since        timestamptz not null, -- when the holder took the lease
    settled      bigint not null,  -- rows settled since the subscription was created; of a worker, since it started
    workers      boolean not null, -- several workers share the epoch; each writes rows with its holder and since
    holder       text not null,
    ordered_by   text[] not null,  -- the table, and the columns and types of the values in low
    low          text[],           -- reading begins with the rows from here on; null: with all
    sink_down    timestamptz,      -- since when the sink takes no message, which the holder writes with each row; null: it takes messages
    sink_error   text not null default ''
);

create index on _adopt_log (subscription, epoch, n);

-- Rows that are out of band: parked, or dead letters. The content stays in the user's table.
create table _adopt_row (
    subscription bigint not null,
    row_id       text collate "C" not null, -- the primary key as text, a JSON array if it has several columns
    seq          bigint not null,           -- the order within a parked key
    parked_key   text collate "C" not null, -- 'k' and the message's key, or 's' and row_id
    message_id   text not null,
    key          text not null,
    topic        text not null,
    attempt      integer not null,
    failures     jsonb not null,
    failed_since timestamptz,
    due          timestamptz,               -- when a parked row that waits for no other row is tried again
    died_at      timestamptz,               -- null: parked
    out_of_order boolean not null,          -- waits for no other row of its parked key
    held         boolean not null default false, -- its parked key waits for it
    retry        boolean not null default false, -- a dead letter that someone sends again
    primary key (subscription, row_id)
);

create index on _adopt_row (subscription, parked_key, seq);

create index on _adopt_row (subscription, due, seq) where due is not null;

create index on _adopt_row (subscription, seq) where retry;

create index on _adopt_row (subscription, seq) where died_at is not null;
