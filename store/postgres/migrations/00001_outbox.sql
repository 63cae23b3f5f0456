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

-- _read_committed refuses to go on where a statement would not see what committed
-- before it: its callers take a lock and then look.
-- +goose StatementBegin
create function _read_committed() returns void
language plpgsql set search_path from current as $$
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        raise exception 'this needs the isolation level read committed' using errcode = '25001';
    end if;
end $$;
-- +goose StatementEnd

-- +goose Down
select 'Penstock does not migrate down: drop the schema instead';
