-- What docs/migrate/pg-boss.md touches of pg-boss 12.38.0: columns, types and defaults as its construction plan makes them.
create schema pgboss;
create type pgboss.job_state as enum ('created', 'retry', 'active', 'completed', 'cancelled', 'failed');
create table pgboss.job (
    id            uuid not null default gen_random_uuid(),
    name          text not null,
    priority      integer not null default 0,
    data          jsonb,
    state         pgboss.job_state not null default 'created',
    retry_limit   integer not null default 2,
    retry_count   integer not null default 0,
    singleton_key text,
    group_id      text,
    start_after   timestamptz not null default now(),
    created_on    timestamptz not null default now(),
    policy        text,
    blocked       boolean not null default false,
    blocking      boolean not null default false,
    primary key (name, id)
) partition by list (name);
create table pgboss.job_common partition of pgboss.job default;
insert into pgboss.job (name, data, priority, state, start_after, group_id, blocked, policy, singleton_key) values
    ('send-email', '{"n": 1}', 0, 'created', now(), null, false, 'key_strict_fifo', 'customer-1'),
    ('send-email', '{"n": 2}', 100, 'created', now(), 'acme', false, null, null),
    ('send-email', '{"n": 3}', 0, 'created', now() + interval '1 day', null, false, null, null),
    ('send-email', '{"n": 4}', 0, 'retry', now() + interval '1 hour', null, false, null, null),
    ('send-email', '{"n": 5}', 0, 'completed', now(), null, false, null, null),
    ('send-email', '{"n": 6}', 0, 'failed', now(), null, false, null, null),
    ('send-email', '{"n": 8}', 0, 'created', now(), null, true, null, null),
    ('other', '{"n": 7}', 0, 'created', now(), null, false, null, null);
insert into pgboss.job (name, data, priority, state, start_after, created_on, policy, singleton_key) values
    ('send-email', '{"n": 20}', 0, 'failed', now(), now() - interval '4 h', 'key_strict_fifo', 'customer-2'),
    ('send-email', '{"n": 21}', 0, 'created', now(), now() - interval '3 h', 'key_strict_fifo', 'customer-2'),
    ('send-email', '{"n": 31}', 0, 'retry', now() + interval '1 hour', now() - interval '3 h', 'key_strict_fifo', 'customer-3'),
    ('send-email', '{"n": 32}', 50, 'created', now(), now() - interval '2 h', 'key_strict_fifo', 'customer-3'),
    ('send-email', '{"n": 41}', 0, 'created', now(), now() - interval '2 h', 'singleton', 'customer-4'),
    ('send-email', '{"n": 42}', 50, 'created', now(), now() - interval '1 h', 'singleton', 'customer-4');
create view old_jobs as select data as job from pgboss.job;
