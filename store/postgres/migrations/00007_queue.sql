-- Queues: jobs for competing consumers. DESIGN.md, "Queues", explains what is here.
--
-- A queue is a ring of segments behind one table, like an outbox. Its functions are
-- made for it, because a static statement over one segment is planned once per
-- session, and a dynamic one at every call: _define makes them of texts in which {schema},
-- {queue} and the like stand for quoted names and {dir} for the order.

-- +goose Up

create table _queue (
    id            integer generated always as identity primary key,
    name          text not null unique check (octet_length(name) between 1 and 48 and left(name, 1) <> '_'),
    lifo          boolean not null,
    segment_bytes bigint not null,
    max_attempts  integer not null default 25 check (max_attempts > 0),
    created_at    timestamptz not null default now()
);

-- The segments of a queue that are in use, in the order in which they came. Their
-- pointer, the sequence called ring, holds turn * 1024 + slot.
create table _segment (
    queue integer not null references _queue on delete cascade,
    slot  smallint not null,
    turn  bigint not null,
    primary key (queue, slot)
);

-- What a dequeue returns. id stays with a job through its retries; attempt is 1
-- the first time.
create type job as (
    id         bigint,
    key        text,
    grp        text,
    priority   smallint,
    attempt    integer,
    created_at timestamptz,
    headers    jsonb,
    payload    bytea
);

create type leased_job as (
    id          bigint,
    key         text,
    grp         text,
    priority    smallint,
    attempt     integer,
    created_at  timestamptz,
    headers     jsonb,
    payload     bytea,
    lease       bigint,
    lease_until timestamptz
);

-- The marks: where the jobs of a group and priority may still be. Insert-only, a
-- ring of two segments; the row with the highest n is true. A mark is written by
-- a transaction that takes jobs, and so comes and goes with what it took.
create sequence _mark_slot minvalue 0 maxvalue 1;
select setval('_mark_slot', 0);
create sequence _mark_n;

create table _mark (
    queue    integer not null,
    n        bigint not null default nextval('_mark_n'),
    base     bigint not null,   -- up to this seq the mark knows about
    seen     bigint not null,   -- what the sequence stood at before ...
    xid      xid8 not null,     -- ... this was drawn: whoever drew such a seq has a lower one
    turn     bigint not null,   -- of the ring when slots was made
    slot     smallint not null default pg_sequence_last_value('_mark_slot')::smallint,
    priority smallint not null,
    grp      text collate "C" not null,
    lo       bigint[] not null, -- jobs are at lo[i] <= seq <= hi[i], for an i, ...
    hi       bigint[] not null,
    pending  xid8[] not null,   -- ... or come from one of these, once it commits
    slots    smallint[] not null -- the segments, oldest first
) partition by list (slot);

create table _mark_0 partition of _mark for values in (0) with (autovacuum_enabled = false);
create table _mark_1 partition of _mark for values in (1) with (autovacuum_enabled = false);
create index on _mark (queue, grp, priority, n);

-- _admit_job is the trigger of a queue, written like _admit_message. Its argument is the
-- queue's register of flags.
-- +goose StatementBegin
do $$ begin execute replace($ddl$
create function _admit_job() returns trigger
language plpgsql as $fn$
begin
    if new.priority operator(pg_catalog.=) 0::smallint and new.key is null and new.headers is null
       and pg_catalog.octet_length(new.grp) operator(pg_catalog.<=) 256
       and pg_catalog.octet_length(new.payload) operator(pg_catalog.<=) 67108864 then
        return new;
    end if;
    perform {schema}._admit_other_job(tg_argv[0]::pg_catalog.regclass, new.priority, new.grp, new.key, new.headers, new.payload);
    return new;
end $fn$ $ddl$, '{schema}', quote_ident(current_schema())); end $$;
-- +goose StatementEnd

-- _admit_other_job remembers in the queue's flags what its jobs have: bit 16 + p for jobs
-- of priority p, bit 32 for jobs with a key. It need not roll back: a flag too many costs
-- a look.
-- +goose StatementBegin
create function _admit_other_job(flags regclass, priority smallint, grp text, key text, headers jsonb, payload bytea) returns void
language plpgsql volatile security definer set search_path from current as $$
declare
    wanted bigint;
begin
    perform _refuse_job(payload, key, grp, priority, headers, null);
    wanted := (1::bigint << (16 + priority)) | case when key is not null then 1::bigint << 32 else 0 end;
    if pg_sequence_last_value(flags) & wanted <> wanted then
        if not exists (select from _queue q where _q(format('_%s.flags', q.name))::regclass = flags) then
            raise exception '% holds no flags of a queue', flags using errcode = '22023';
        end if;
        perform pg_advisory_lock(1885695597, flags::oid::int);
        perform setval(flags, pg_sequence_last_value(flags) | wanted);
        perform pg_advisory_unlock(1885695597, flags::oid::int);
    end if;
end $$;
-- +goose StatementEnd

-- +goose Down
select 'Penstock does not migrate down: drop the schema instead';
