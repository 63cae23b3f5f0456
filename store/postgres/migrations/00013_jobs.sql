-- Jobs: leases, retries, delays, keys. What a queue needs beyond its
-- ring (00007 to 00012) and a plain INSERT or dequeue. A job is in exactly one place at a time,
-- and moves by a DELETE and an INSERT in one transaction:
--
--   ready ring -> _lease          claim
--   _lease     -> nothing         ack
--   _lease     -> _later -> ready retry, once it is due
--   _lease     -> ready           release, or its lease ended
--   ready      -> _later -> ready it waits for another job of its key
--   _lease     -> _dead_job       bury, or the last attempt failed

-- +goose Up

alter table _queue
    add column paused       boolean not null default false,
    add column max_running  integer check (max_running > 0),
    add column dedup_window interval not null default '1 hour' check (dedup_window > interval '0');

-- Rings of two segments. Which one is written to, a sequence says; what is left of
-- the other is carried over, and it is truncated, also under a pinned snapshot.
create sequence _lease_slot minvalue 0 maxvalue 1;
select setval('_lease_slot', 0);
create sequence _later_slot minvalue 0 maxvalue 1;
select setval('_later_slot', 0);
create sequence _dedup_slot minvalue 0 maxvalue 1;
select setval('_dedup_slot', 0);
create sequence _lease_n;

-- What has been claimed. Only extend updates a row.
create table _lease (
    lease       bigint not null default nextval('_lease_n'),
    queue       integer not null,
    attempt     integer not null,     -- this one counted
    lease_until timestamptz not null,
    id          bigint not null,
    created_at  timestamptz not null,
    priority    smallint not null,
    slot        smallint not null default pg_sequence_last_value('_lease_slot')::smallint,
    worker      text not null,
    grp         text not null,
    key         text,
    headers     jsonb,
    payload     bytea not null,
    failures    jsonb
) partition by list (slot);

create table _lease_0 partition of _lease for values in (0) with (autovacuum_enabled = false, toast.autovacuum_enabled = false);
create table _lease_1 partition of _lease for values in (1) with (autovacuum_enabled = false, toast.autovacuum_enabled = false);
create index on _lease (lease);
create index on _lease (queue, lease_until);
create index on _lease (queue, key) where key is not null;

-- What may not run yet: until a time, or, at infinity, until an earlier job of its
-- key has ended.
create table _later (
    id         bigint not null,
    queue      integer not null,
    attempt    integer not null,      -- how many it has had
    due        timestamptz not null,
    created_at timestamptz not null,
    priority   smallint not null,
    slot       smallint not null default pg_sequence_last_value('_later_slot')::smallint,
    grp        text not null,
    key        text,
    headers    jsonb,
    payload    bytea not null,
    failures   jsonb
) partition by list (slot);

create table _later_0 partition of _later for values in (0) with (autovacuum_enabled = false, toast.autovacuum_enabled = false);
create table _later_1 partition of _later for values in (1) with (autovacuum_enabled = false, toast.autovacuum_enabled = false);
create index on _later (queue, due, id);
create index on _later (queue, key, id) where key is not null;
create index on _later (queue, id);

create table _dedup (
    queue     integer not null,
    id        bigint not null,        -- the job that came first
    at        timestamptz not null default clock_timestamp(),
    slot      smallint not null default pg_sequence_last_value('_dedup_slot')::smallint,
    dedup_key text not null
) partition by list (slot);

create table _dedup_0 partition of _dedup for values in (0) with (autovacuum_enabled = false);
create table _dedup_1 partition of _dedup for values in (1) with (autovacuum_enabled = false);
create index on _dedup (queue, dedup_key, at);

create table _dead_job (
    queue      integer not null references _queue on delete cascade,
    id         bigint not null,
    attempt    integer not null,
    created_at timestamptz not null,
    died_at    timestamptz not null default clock_timestamp(),
    priority   smallint not null,
    grp        text not null,
    key        text,
    headers    jsonb,
    payload    bytea not null,
    failures   jsonb not null,
    primary key (queue, id)
);

-- An operator, see grant_operator, sees the dead letters of his queues.
alter table _dead_job enable row level security;
create policy operator on _dead_job for select using (queue in (
    select q.id from _queue q where has_function_privilege(to_regprocedure(_q(format('_%s.status', q.name)) || '()'), 'execute')));

-- _failed adds a failure to a job's history and keeps the latest ten.
-- +goose StatementBegin
create function _failed(failures jsonb, attempt int, error text) returns jsonb
language sql volatile set search_path from current as $$
    select jsonb_agg(e order by i)
      from (select e, i from jsonb_array_elements(coalesce(failures, '[]') || jsonb_build_object(
                'attempt', attempt, 'error', coalesce(error, ''),
                'at', to_char(clock_timestamp() at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'))) with ordinality x(e, i)
             order by i desc limit 10) latest
$$;
-- +goose StatementEnd

-- _refuse_job raises what is wrong with a job, as a producer is to read it.
-- +goose StatementBegin
create function _refuse_job(payload bytea, key text, grp text, priority int, headers jsonb, dedup_key text) returns void
language plpgsql volatile set search_path from current as $$
begin
    if payload is null then
        raise exception 'the payload is null' using errcode = '22023', hint = 'use an empty payload if the job needs none';
    elsif octet_length(payload) > 67108864 then
        raise exception 'the payload has % bytes, the limit is 67108864', octet_length(payload)
        using errcode = '23514', hint = 'store it elsewhere and enqueue a reference';
    elsif octet_length(key) > 1024 then
        raise exception 'the key has % bytes, the limit is 1024', octet_length(key) using errcode = '23514', hint = 'use a hash of it';
    elsif octet_length(grp) > 256 then
        raise exception 'the group has % bytes, the limit is 256', octet_length(grp) using errcode = '23514', hint = 'use a shorter name, or a hash of it';
    elsif priority not between -16 and 15 then
        raise exception 'the priority is %, expected -16 to 15', priority using errcode = '23514', hint = 'lower numbers run first; 0 is the default';
    elsif octet_length(dedup_key) > 256 then
        raise exception 'the dedup_key has % bytes, the limit is 256', octet_length(dedup_key) using errcode = '23514', hint = 'use a hash of it';
    elsif jsonb_typeof(headers) <> 'object' or octet_length(headers::text) > 65536 then
        perform _refuse_headers(headers);
    end if;
end $$;
-- +goose StatementEnd

-- +goose StatementBegin
create function _lost(lease bigint) returns timestamptz
language plpgsql volatile set search_path from current as $$
begin
    raise exception 'lease % is lost', coalesce(lease::text, 'null')
    using errcode = '55000', hint = 'it has ended, or the job was settled or cancelled: extend leases while a job runs, or claim with a longer one';
end $$;
-- +goose StatementEnd

-- +goose Down
select 'Penstock does not migrate down: drop the schema instead';
