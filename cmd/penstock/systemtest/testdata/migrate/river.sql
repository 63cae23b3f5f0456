-- What docs/migrate/river.md touches of River 0.51.2: columns, types and defaults as its migrations make them.
create type river_job_state as enum ('available', 'cancelled', 'completed', 'discarded', 'pending', 'retryable', 'running', 'scheduled');
create table river_job (
    id           bigserial primary key,
    state        river_job_state not null default 'available',
    attempt      smallint not null default 0,
    max_attempts smallint not null default 25 check (max_attempts > 0),
    finalized_at timestamptz,
    scheduled_at timestamptz not null default now(),
    priority     smallint not null default 1 check (priority between 1 and 4),
    args         jsonb not null,
    kind         text not null,
    metadata     jsonb not null default '{}',
    queue        text not null default 'default',
    tags         varchar(255)[] not null default '{}',
    check ((finalized_at is null) = (state not in ('cancelled', 'completed', 'discarded')))
);
insert into river_job (kind, args, state, scheduled_at, priority, tags, attempt, finalized_at) values
    ('email', '{"n": 1}', 'available', now(), 1, '{}', 0, null),
    ('email', '{"n": 2}', 'available', now(), 4, '{a,b}', 0, null),
    ('email', '{"n": 3}', 'scheduled', now() + interval '1 day', 1, '{}', 0, null),
    ('email', '{"n": 4}', 'retryable', now() + interval '1 hour', 1, '{}', 3, null),
    ('email', '{"n": 5}', 'completed', now(), 1, '{}', 1, now()),
    ('email', '{"n": 6}', 'discarded', now(), 1, '{}', 25, now()),
    ('other', '{"n": 7}', 'available', now(), 1, '{}', 0, null);
create view old_jobs as select args as job from river_job;
