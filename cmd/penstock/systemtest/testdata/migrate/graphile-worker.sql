-- What docs/migrate/graphile-worker.md touches of graphile-worker 0.18.0: columns and types as its migrations make them, and
-- of add_job as much as the guide calls.
create schema graphile_worker;
create table graphile_worker._private_tasks (id int primary key generated always as identity, identifier text not null unique);
create table graphile_worker._private_job_queues (id int primary key generated always as identity, queue_name text not null unique);
create table graphile_worker._private_jobs (
    id           bigint primary key generated always as identity,
    job_queue_id int,
    task_id      int not null,
    payload      json not null default '{}',
    priority     smallint not null default 0,
    run_at       timestamptz not null default now(),
    attempts     smallint not null default 0,
    max_attempts smallint not null default 25,
    key          text unique,
    locked_at    timestamptz,
    locked_by    text
);
create view graphile_worker.jobs as
    select j.id, q.queue_name, t.identifier as task_identifier, j.priority, j.run_at, j.attempts, j.max_attempts, j.key, j.locked_at, j.locked_by
    from graphile_worker._private_jobs j join graphile_worker._private_tasks t on t.id = j.task_id
        left join graphile_worker._private_job_queues q on q.id = j.job_queue_id;
create function graphile_worker.add_job(identifier text, payload json default null, queue_name text default null, priority int default null)
returns graphile_worker._private_jobs language sql as $$
    insert into graphile_worker._private_job_queues (queue_name) select $3 where $3 is not null on conflict do nothing;
    insert into graphile_worker._private_jobs (task_id, job_queue_id, payload, priority)
    values ((select t.id from graphile_worker._private_tasks t where t.identifier = $1),
        (select q.id from graphile_worker._private_job_queues q where q.queue_name = $3), coalesce($2, '{}'), coalesce($4, 0)::smallint)
    returning *
$$;
insert into graphile_worker._private_tasks (identifier) values ('send_email'), ('other');
insert into graphile_worker._private_job_queues (queue_name) values ('customer-1');
insert into graphile_worker._private_jobs (task_id, job_queue_id, payload, priority, run_at, attempts, key) values
    (1, null, '{"n": 1}', 0, now(), 0, null),
    (1, 1, '{"n": 2}', -100, now(), 0, null),
    (1, null, '{"n": 3}', 0, now() + interval '1 day', 0, 'reminder'),
    (1, null, '{"n": 4}', 0, now() + interval '1 hour', 3, null),
    (1, null, '{"n": 6}', 0, now(), 25, null),
    (2, null, '{"n": 7}', 0, now(), 0, null);
create view old_jobs as select payload::jsonb as job from graphile_worker._private_jobs;
