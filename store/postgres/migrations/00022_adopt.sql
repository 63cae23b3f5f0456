-- Adopted tables: what Penstock remembers of subscriptions over tables that others
-- made. Those tables are never altered.

-- +goose Up

create table _adopt_subscription (
    id         bigint generated always as identity primary key,
    name       text not null unique check (octet_length(name) between 1 and 128),
    source     text not null, -- the table, qualified and quoted
    mark       text not null, -- the column that says what is delivered; '' where rows leave the table
    created_at timestamptz not null default now()
);
create index on _adopt_subscription (source);

-- The log of low-water marks and leases: of a subscription the row with the highest
-- (epoch, n) is true. Insert-only, as _cursor is, and for the same reason; old rows
-- are deleted in bulk, and lie where nobody looks.
create sequence _adopt_n;
create table _adopt_log (
    subscription bigint not null,
    epoch        bigint not null,
    n            bigint not null default nextval('_adopt_n'),
    at           timestamptz not null default clock_timestamp(),
    lease_until  timestamptz not null,
    since        timestamptz not null, -- when the holder took the lease
    settled      bigint not null,  -- rows settled since the subscription was created; by a worker, since it came
    workers      boolean not null, -- several share the epoch, each with rows of its own holder and since
    holder       text not null,
    ordered_by   text[] not null,  -- what the mark's values are of
    low          text[]            -- rows from here on are read first; null: all
);
create index on _adopt_log (subscription, epoch, n);

-- Rows set aside: parked, or dead letters. The content stays in the user's table.
create table _adopt_row (
    subscription bigint not null,
    row_id       text collate "C" not null, -- the primary key as text, a JSON array if it has several columns
    seq          bigint not null,           -- the order within a line
    line         text collate "C" not null, -- 'k' and the message's key, or 's' and row_id
    message_id   text not null,
    key          text not null,
    topic        text not null,
    attempt      integer not null,
    failures     jsonb not null,
    failed_since timestamptz,
    due          timestamptz,               -- of a parked row that waits for nothing but the time
    died_at      timestamptz,               -- null: parked
    alone        boolean not null,          -- waits for nobody of its line
    held         boolean not null default false, -- its line waits for it
    retry        boolean not null default false, -- a dead letter that someone sends again
    primary key (subscription, row_id)
);
create index on _adopt_row (subscription, line, seq);
create index on _adopt_row (subscription, due, seq) where due is not null;
create index on _adopt_row (subscription, seq) where retry;
create index on _adopt_row (subscription, seq) where died_at is not null;

-- _adopt_fence lets a settling transaction pass while nobody of a later epoch has the
-- lease, and keeps it from changing hands until that transaction ends. SQLSTATE PS001
-- otherwise.
-- +goose StatementBegin
create function _adopt_fence(of_subscription bigint, of_epoch bigint) returns void
language plpgsql set search_path from current set enable_seqscan = off set enable_sort = off as $$
declare
    latest bigint;
begin
    perform pg_advisory_xact_lock_shared(1885695585, of_subscription::int); -- "pena"
    select l.epoch into latest from _adopt_log l where l.subscription = of_subscription
     order by l.subscription desc, l.epoch desc, l.n desc limit 1;
    if latest is distinct from of_epoch then
        raise exception 'the lease is held by another relay' using errcode = 'PS001';
    end if;
end $$;
-- +goose StatementEnd

-- _adopt_lock is for whoever changes the state of a subscription from outside: no
-- settling transaction is under way while it is held.
create function _adopt_lock(of_subscription bigint) returns void
language sql set search_path from current
return pg_advisory_xact_lock(1885695585, of_subscription::int);

-- _adopt_release makes the first parked row of each line due, if nothing holds it.
-- +goose StatementBegin
create function _adopt_release(of_subscription bigint, lines text[]) returns void
language sql set search_path from current set enable_seqscan = off set enable_sort = off set enable_hashjoin = off set enable_mergejoin = off as $$
    update _adopt_row r set due = clock_timestamp()
      from unnest(lines) l (line)
     cross join lateral (
            select f.row_id from _adopt_row f
             where f.subscription = of_subscription and f.line = l.line and f.died_at is null and not f.alone
             order by f.subscription, f.line, f.seq limit 1) first
     where r.subscription = of_subscription and r.row_id = first.row_id and r.due is null
       and not exists (select from _adopt_row h where h.subscription = of_subscription and h.line = l.line and h.held)
$$;
-- +goose StatementEnd

-- grant_adopt lets a role, which may use the adopted tables already, run subscriptions
-- over them. Runs as the schema's owner.
-- +goose StatementBegin
create function grant_adopt(role name) returns void
language plpgsql set search_path from current as $$
begin
    execute format('grant usage on schema %I to %I', current_schema(), role);
    execute format('grant select on table _migration to %I', role);
    execute format('grant select, insert, update, delete on table _adopt_subscription, _adopt_log, _adopt_row to %I', role);
    execute format('grant usage on sequence _adopt_n to %I', role);
    execute format('grant execute on function _adopt_fence(bigint, bigint), _adopt_lock(bigint), _adopt_release(bigint, text[]) to %I', role);
end $$;
-- +goose StatementEnd

-- +goose Down
select 'Penstock does not migrate down: drop the schema instead';
