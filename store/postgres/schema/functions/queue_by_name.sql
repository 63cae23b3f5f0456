-- The functions that take a queue's name. They call the queue's own functions as their caller, who needs the
-- right to those. The call is dynamic, because a branch for each queue would have to be made anew with every queue.
-- It costs about 20 us (docs/decisions/0011), which a direct call of a queue's own function does not. They have no
-- search_path, so all in them is qualified.

do $do$ begin execute replace(replace($ddl$

-- _queue_function returns the name of a function of a queue. Error: 42P01.
create or replace function _queue_function(queue text, name text) returns text
language plpgsql stable
as $fn$ declare own constant text := {prefix} operator(pg_catalog.||) pg_catalog.quote_ident(pg_catalog.concat('_', queue, '.', name));
begin
    if queue is null or pg_catalog.starts_with(queue, '_') or pg_catalog.to_regproc(own) is null then
        raise exception 'there is no queue %', coalesce(pg_catalog.quote_literal(queue), 'null')
        using errcode = '42P01', hint = pg_catalog.concat('create it with: penstock queue create ', coalesce(pg_catalog.quote_literal(queue), 'NAME'));
    end if;
    return own;
end $fn$;

-- _call calls a function of a queue, and returns its result, or the first row of it, as text. The call names the arguments as $1[1] and on: their values
-- are in no statement's text, which the server may log.
create or replace function _call(queue text, call text, arguments text[] default '{}') returns text
language plpgsql volatile as $fn$ declare result text;
begin
    execute pg_catalog.concat('select ', {schema}._queue_function(queue, pg_catalog.split_part(call, '(', 1)), pg_catalog.substr(call, pg_catalog.strpos(call, '('))) into result using arguments;
    return result;
end $fn$;

create or replace function enqueue_bytes(queue text, payload bytea, key text default null, group_key text default '', priority int default 0,
                        not_before timestamptz default null, dedup_key text default null, headers jsonb default null, kind text default null,
                        unique_key text default null, on_conflict text default null, debounce_max interval default null,
                        max_attempts int default null, timeout interval default null, deadline timestamptz default null,
                        holds bigint default null, waits_for bigint[] default null, on_dead text default null) returns bigint
language plpgsql volatile as $fn$ declare made bigint;
begin
    execute pg_catalog.concat('select ', {schema}._queue_function(queue, 'enqueue'), '($1, $2, $3, $4, $5, $6, $7)')
       into made using payload, key, group_key, priority, not_before, dedup_key,
                       case when kind operator(pg_catalog.<>) '' or pg_catalog.num_nonnulls(unique_key, on_conflict, debounce_max, max_attempts, timeout, deadline, holds, waits_for, on_dead) operator(pg_catalog.>) 0
                            then {schema}._with_options(headers, kind, unique_key, on_conflict, debounce_max, max_attempts, timeout, deadline, holds, waits_for, on_dead) else headers end;
    return made;
end $fn$;

comment on function enqueue_bytes is 'Writes one job and returns its id; of a duplicate (dedup_key, unique_key), the id of the job that was there. The kind names the handler that takes it, and is its header penstock-kind; other options are headers as well. It may hold one barrier and wait for others (holds, waits_for). If a job that holds one of these is dead, on_dead decides: wait, the default, run, or cancel, which makes a dead letter of the job. Errors: 42P01 for an unknown queue, 23514 for a value over its limit, 22023 for a payload that is null.';

create or replace function enqueue_many_bytes(queue text, payloads bytea[], keys text[] default null, group_keys text[] default null, priorities int[] default null,
                             not_befores timestamptz[] default null, dedup_keys text[] default null, headers jsonb[] default null, kinds text[] default null,
                             unique_keys text[] default null, on_conflict text default null, debounce_max interval default null,
                             max_attempts int default null, timeout interval default null, deadline timestamptz default null,
                        holds bigint default null, waits_for bigint[] default null, on_dead text default null) returns setof bigint
language plpgsql volatile as $fn$ declare many constant int := coalesce(pg_catalog.cardinality(payloads), 0);
begin
    return query execute pg_catalog.concat('select ', {schema}._queue_function(queue, 'enqueue_many'), '($1, $2, $3, $4, $5, $6, $7)')
                   using payloads, keys, group_keys, priorities, not_befores, dedup_keys,
                         case when pg_catalog.num_nonnulls(kinds, unique_keys, on_conflict, debounce_max, max_attempts, timeout, deadline, holds, waits_for, on_dead) operator(pg_catalog.=) 0 then headers
                              -- none, where they differ in length, so that the queue's function refuses them
                              else array(select {schema}._with_options(j.header, j.kind, j.unique_key, case when j.unique_key is not null then on_conflict end, case when j.unique_key is not null then debounce_max end,
                                                                       max_attempts, timeout, deadline, holds, waits_for, on_dead)
                                           from rows from (pg_catalog.generate_series(1, many), pg_catalog.unnest(headers), pg_catalog.unnest(kinds), pg_catalog.unnest(unique_keys)) j(i, header, kind, unique_key)
                                          order by j.i limit case when coalesce(pg_catalog.cardinality(headers), many) operator(pg_catalog.=) many and coalesce(pg_catalog.cardinality(kinds), many) operator(pg_catalog.=) many
                                                                       and coalesce(pg_catalog.cardinality(unique_keys), many) operator(pg_catalog.=) many then many
                                                                  else 0 end) end;
end $fn$;

comment on function enqueue_many_bytes is 'Writes a job for each payload, in their order, and returns the ids. An array that is null stands for the default. The options that are not arrays are the same for each job.';

create or replace function enqueue(queue text, payload text, key text default null, group_key text default '', priority int default 0,
                        not_before timestamptz default null, dedup_key text default null, headers jsonb default null, kind text default null,
                        unique_key text default null, on_conflict text default null, debounce_max interval default null,
                        max_attempts int default null, timeout interval default null, deadline timestamptz default null,
                        holds bigint default null, waits_for bigint[] default null, on_dead text default null) returns bigint
language plpgsql volatile as $fn$ begin
    return {schema}.enqueue_bytes(queue, pg_catalog.convert_to(payload, 'UTF8'), key, group_key, priority, not_before, dedup_key, headers, kind, unique_key, on_conflict, debounce_max, max_attempts, timeout, deadline, holds, waits_for, on_dead);
end $fn$;

comment on function enqueue(text, text, text, text, int, timestamptz, text, jsonb, text, text, text, interval, int, interval, timestamptz, bigint, bigint[], text) is 'Writes one job whose payload is text, as UTF-8, and returns its id. Otherwise it is like enqueue_bytes.';

create or replace function enqueue(queue text, payload jsonb, key text default null, group_key text default '', priority int default 0,
                        not_before timestamptz default null, dedup_key text default null, headers jsonb default null, kind text default null,
                        unique_key text default null, on_conflict text default null, debounce_max interval default null,
                        max_attempts int default null, timeout interval default null, deadline timestamptz default null,
                        holds bigint default null, waits_for bigint[] default null, on_dead text default null) returns bigint
language plpgsql volatile as $fn$ begin
    return {schema}.enqueue_bytes(queue, pg_catalog.convert_to(payload::pg_catalog.text, 'UTF8'), key, group_key, priority, not_before, dedup_key, headers, kind, unique_key, on_conflict, debounce_max, max_attempts, timeout, deadline, holds, waits_for, on_dead);
end $fn$;

comment on function enqueue(text, jsonb, text, text, int, timestamptz, text, jsonb, text, text, text, interval, int, interval, timestamptz, bigint, bigint[], text) is 'Writes one job whose payload is JSON, as UTF-8, and returns its id. Otherwise it is like enqueue_bytes.';

create or replace function enqueue_many(queue text, payloads text[], keys text[] default null, group_keys text[] default null, priorities int[] default null,
                             not_befores timestamptz[] default null, dedup_keys text[] default null, headers jsonb[] default null, kinds text[] default null,
                             unique_keys text[] default null, on_conflict text default null, debounce_max interval default null,
                             max_attempts int default null, timeout interval default null, deadline timestamptz default null,
                        holds bigint default null, waits_for bigint[] default null, on_dead text default null) returns setof bigint
language plpgsql volatile as $fn$ begin
    return query select {schema}.enqueue_many_bytes(queue, array(select pg_catalog.convert_to(p.payload, 'UTF8') from pg_catalog.unnest(payloads) with ordinality p(payload, i) order by p.i),
                                                keys, group_keys, priorities, not_befores, dedup_keys, headers, kinds, unique_keys, on_conflict, debounce_max, max_attempts, timeout, deadline, holds, waits_for, on_dead);
end $fn$;

comment on function enqueue_many is 'Writes a job for each text, as UTF-8, in their order, and returns the ids. Otherwise it is like enqueue_many_bytes.';

create or replace function barrier(queue text) returns bigint
language sql volatile as $fn$ select {schema}._call(queue, 'barrier(null, null)')::bigint $fn$;

comment on function barrier is 'Makes a barrier for jobs of a queue, and returns its number. It opens, once, when it is sealed and each job that holds it has ended. Error: 42P01.';

create or replace function seal(queue text, barrier bigint) returns void
language sql volatile as $fn$ select {schema}._call(queue, 'barrier($1[1]::bigint, null)', array[coalesce(barrier, 0)::pg_catalog.text]) $fn$;

comment on function seal is 'Seals a barrier: it opens when each job that holds it has ended, at once if none does. A job that holds it may still add others. Errors: 42P01, 23514 if the queue has no such barrier, 25001.';

create or replace function deduplicated(n bigint default 1) returns boolean
language sql volatile as $fn$
    select told.it operator(pg_catalog.=) 't'
      from (select pg_catalog.substr(pg_catalog.current_setting(pg_catalog.concat('penstock.deduplicated_', (n operator(pg_catalog.-) 1) operator(pg_catalog./) 1000), true),
                                     ((n operator(pg_catalog.-) 1) operator(pg_catalog.%) 1000 operator(pg_catalog.+) 1)::pg_catalog.int4, 1)) told(it)
     where told.it operator(pg_catalog.<>) '' $fn$;

comment on function deduplicated is 'Returns whether the nth job of this transaction''s last enqueue was not written, because there was one with its dedup_key or unique_key. Null if that enqueue had neither, or was in another transaction.';

create or replace function dequeue(queue text, n int default 1, group_key text default '') returns setof job
language plpgsql volatile as $fn$ declare take constant text := {schema}._queue_function(queue, 'take');
begin
    if n operator(pg_catalog.=) 1 and group_key operator(pg_catalog.=) '' then
        return query execute pg_catalog.concat('select * from ', {prefix}, pg_catalog.quote_ident(pg_catalog.concat('dequeue_', queue)), '()');
    else
        return query execute pg_catalog.concat('select coalesce(id, seq), key, group_key, priority, attempt operator(pg_catalog.+) 1, created_at, headers, payload from ', take, '($1, $2)') using n, coalesce(group_key, '');
    end if;
end $fn$;

comment on function dequeue is 'Takes up to n jobs of a group: they are gone when the caller''s transaction commits, and back when it rolls back.';

create or replace function claim(queue text, n int default 1, lease interval default '30 s', group_key text default '', worker text default '') returns setof leased_job
language plpgsql volatile as $fn$ begin
    return query execute pg_catalog.concat('select * from ', {schema}._queue_function(queue, 'claim'), '($1, $2, $3, $4)') using n, lease, coalesce(group_key, ''), worker;
end $fn$;

comment on function claim is 'Leases up to n jobs of a group. A worker that does not ack, extend, release or retry them in time loses them: they run again.';

create or replace function ack_claim(queue text, leases bigint[], n int default 1, lease interval default '30 s', group_key text default '', worker text default '') returns setof leased_job
language plpgsql volatile as $fn$ begin
    return query execute pg_catalog.concat('select * from ', {schema}._queue_function(queue, 'claim'), '($1, $2, $3, $4, $5)') using n, lease, coalesce(group_key, ''), worker, leases;
end $fn$;

comment on function ack_claim is 'Ends jobs, as ack_many does, and claims others with the same call: both, or neither. Behind the jobs it returns the leases that were still held, as rows with only a lease; lease 0 means that a limit of running jobs is close. Leases of a claim may share a row: an ack of one waits for the end of a transaction that acks another.';

create or replace function ack_many(queue text, leases bigint[]) returns setof bigint
language plpgsql volatile
as $fn$ begin return query execute pg_catalog.concat('select ', {schema}._queue_function(queue, 'ack'), '($1)') using leases; end $fn$;

comment on function ack_many is 'Removes jobs that are done, and returns the leases that were still held.';

create or replace function ack(queue text, lease bigint) returns void
language plpgsql volatile as $fn$ declare held bigint;
begin
    execute pg_catalog.concat('select ', {schema}._queue_function(queue, 'ack'), '(array[$1])') into held using lease;
    if held is null then perform {schema}._lost(lease); end if;
end $fn$;

comment on function ack is 'Removes a job that is done. Error: PS001 if its lease is lost.';

create or replace function extend_many(queue text, leases bigint[], by interval) returns setof bigint
language plpgsql volatile as $fn$ begin
    return query execute pg_catalog.concat('select lease from ', {schema}._queue_function(queue, 'extend'), '($1, $2)') using leases, by;
end $fn$;

comment on function extend_many is 'Makes leases end by from now, and returns those that were still held.';

create or replace function extend(queue text, lease bigint, by interval) returns timestamptz
language plpgsql volatile as $fn$ declare until timestamptz;
begin
    execute pg_catalog.concat('select until from ', {schema}._queue_function(queue, 'extend'), '(array[$1], $2)') into until using lease, by;
    if until is null then perform {schema}._lost(lease); end if;
    return until;
end $fn$;

comment on function extend is 'Makes a lease end by from now, and returns when that is. Error: PS001.';

create or replace function report(queue text, lease bigint, report jsonb) returns void
language plpgsql volatile as $fn$ begin
    if {schema}._call(queue, 'report($1[1]::bigint, $1[2]::pg_catalog.jsonb)', array[lease::pg_catalog.text, report::pg_catalog.text]) is null then
        perform {schema}._lost(lease);
    end if;
end $fn$;

comment on function report is 'Writes how far a running job is, or its result, until the next report. The next attempt has it in the header penstock-report. A queue that keeps done jobs keeps the report of the last attempt. The member penstock-steps holds the results of steps by name: a report that has it adds to the one before, any other takes the place of all but the steps. Up to 64 KiB as text. Of lease 0 it is a worker''s report of itself, under the name in its member worker: for 90 seconds it shows that the worker lives. Errors: PS001, 22023.';

create or replace function release_many(queue text, leases bigint[], after interval default null) returns setof bigint
language plpgsql volatile as $fn$ begin
    return query execute pg_catalog.concat('select ', {schema}._queue_function(queue, 'release'), '($1, $2)') using leases, after;
end $fn$;

comment on function release_many is 'Gives jobs back, to run again after a while: no attempt is spent. Returns the leases that were still held.';

create or replace function release(queue text, lease bigint, after interval default null) returns void
language plpgsql volatile as $fn$ begin
    if {schema}._call(queue, 'release(array[$1[1]::bigint], $1[2]::interval)', array[lease::pg_catalog.text, after::pg_catalog.text]) is null then
        perform {schema}._lost(lease);
    end if;
end $fn$;

comment on function release is 'Gives a job back, to run again after a while: no attempt is spent. Error: PS001.';

create or replace function retry(queue text, lease bigint, after interval default null, error text default '') returns boolean
language sql volatile as $fn$ select {schema}._call(queue, 'fail($1[1]::bigint, $1[2]::interval, $1[3], false)', array[lease::pg_catalog.text, after::pg_catalog.text, error]) is not null $fn$;

comment on function retry is 'Makes a job run again after a while; null stands for a time that grows with its attempts. False: that was its last attempt, and it is a dead letter now. Error: PS001.';

create or replace function dead_letter(queue text, lease bigint, error text default '') returns void
language sql volatile as $fn$ select {schema}._call(queue, 'fail($1[1]::bigint, null, $1[2], true)', array[lease::pg_catalog.text, error]) $fn$;

comment on function dead_letter is 'Makes a job a dead letter. Error: PS001.';

-- _count_of calls the function count of a queue, for clients that ask for several queues.
create or replace function _count_of(queue text, most int) returns bigint[]
language sql volatile as $fn$ select {schema}._call(queue, 'count($1[1]::int)', array[most::pg_catalog.text])::bigint[] $fn$;

-- _done_of calls the function done_jobs of a queue: it returns a page of jobs, and where the next page begins.
create or replace function _done_of(queue text, most int, before text, ids bigint[]) returns jsonb
language sql volatile as $fn$ select {schema}._call(queue, 'done_jobs($1[1]::int, $1[2], $1[3]::bigint[])', array[most::pg_catalog.text, before, ids::pg_catalog.text])::pg_catalog.jsonb $fn$;

create or replace function cancel(queue text, ids bigint[]) returns int
language sql volatile as $fn$ select {schema}._call(queue, 'cancel($1[1]::bigint[])', array[ids::pg_catalog.text])::int $fn$;

comment on function cancel is 'Removes jobs wherever they are, and returns how many. A running job loses its lease.';

create or replace function pause_queue(name text) returns void
language sql volatile as $fn$ select {schema}._call(name, 'pause(true)') $fn$;

comment on function pause_queue is 'Pauses a queue: claims and dequeues return no job until resume_queue.';

create or replace function resume_queue(name text) returns void
language sql volatile as $fn$ select {schema}._call(name, 'pause(false)') $fn$;

comment on function resume_queue is 'Ends the pause of a queue.';

create or replace function dead_jobs(queue text, most int default 100, after bigint default 0)
returns table (id bigint, key text, group_key text, priority smallint, attempt int, created_at timestamptz, died_at timestamptz, headers jsonb, payload bytea, error text, failures jsonb)
language plpgsql volatile as $fn$ begin
    execute pg_catalog.concat('explain select ', {schema}._queue_function(queue, 'discard_dead'), '(null)'); -- an error for a role without the right: it sees no row of the queue
    return query select d.id, d.key, d.group_key, d.priority, d.attempt, d.created_at, d.died_at, d.headers, d.payload, coalesce(d.failures operator(pg_catalog.->) -1 operator(pg_catalog.->>) 'error', ''), d.failures
                   from {schema}._dead_job d join {schema}._queue q on q.id operator(pg_catalog.=) d.queue
                  where q.name operator(pg_catalog.=) dead_jobs.queue and d.id operator(pg_catalog.>) coalesce(after, 0) order by d.id limit most;
end $fn$;

comment on function dead_jobs is 'Lists dead letters by id: up to most, behind the id of one. error is that of the last attempt.';

create or replace function retry_dead_jobs(queue text, ids bigint[]) returns int
language sql volatile as $fn$ select {schema}._call(queue, 'retry_dead($1[1]::bigint[])', array[ids::pg_catalog.text])::int $fn$;

comment on function retry_dead_jobs is 'Puts dead letters back at the end of their queue, and has jobs run now that are delayed, or failed and wait; returns how many. The number of attempts stays: a job that has used up max_attempts gets one more, and is a dead letter again if that fails.';

create or replace function discard_dead_jobs(queue text, ids bigint[]) returns int
language sql volatile as $fn$ select {schema}._call(queue, 'discard_dead($1[1]::bigint[])', array[ids::pg_catalog.text])::int $fn$;

comment on function discard_dead_jobs is 'Removes dead letters, and returns how many.';

create or replace function queue_status(queue text) returns table (ready bigint, running bigint, delayed bigint, waiting bigint, dead bigint, oldest interval, expired bigint)
language sql volatile as $fn$
    select c.n[1], c.n[2], c.n[3], c.n[4], c.n[5], c.n[6] operator(pg_catalog.*) interval '1 microsecond', c.n[8] from {schema}._count_of(queue, null) c(n) $fn$;

comment on function queue_status is 'Counts a queue''s jobs by where they are, and returns the age of the oldest ready one. Jobs that have expired are counted from the queue''s creation on.';

create or replace function ready_groups(queue text, group_keys text[] default null, behind text default '', most int default 100) returns setof text
language plpgsql volatile as $fn$ begin
    return query execute pg_catalog.concat('select * from ', {schema}._queue_function(queue, 'ready'), '($1, $2, $3)') using group_keys, behind, most;
end $fn$;

comment on function ready_groups is 'Lists the groups that have jobs to be taken, among some, or after one by name.';

create or replace function queue_groups(queue text, after text default '', most int default 1000)
returns table (group_key text, ready bigint, running bigint, delayed bigint, waiting bigint, dead bigint, oldest interval, more boolean,
               max_running int, rate int, per interval, burst int, weight int, tokens int, held_until timestamptz, reason text)
language plpgsql volatile as $fn$ begin
    return query execute pg_catalog.concat('with g as materialized (select * from ', {schema}._queue_function(queue, 'count_groups'), '($1, $2))
        select g.group_key, g.ready, g.running, g.delayed, g.waiting, g.dead, g.oldest operator(pg_catalog.*) interval ''1 microsecond'', g.more,
               l.max_running, l.rate, l.per, l.burst, l.weight, l.tokens, l.held_until, l.reason
          from g left join ', {schema}._queue_function(queue, 'group_limits'), '(array(select g.group_key from g), null, null) l on l.group_key operator(pg_catalog.=) g.group_key
         order by g.group_key collate "C"') using after, most;
end $fn$;

comment on function queue_groups is 'Counts the jobs of each group. Of those that are ready or wait it counts up to 1,000; more means that there are others. It also returns the limits that the group has, how many jobs its rate lets start now (tokens), and until when and why it is held.';

create or replace function set_group(queue text, group_key text, max_running int default null, rate int default null, per interval default null, burst int default null, weight int default null) returns void
language sql volatile as $fn$ select {schema}._call(queue, 'set_group($1[1], $1[2]::int, $1[3]::int, $1[4]::interval, $1[5]::int, $1[6]::int)', array[group_key, max_running::pg_catalog.text, rate::pg_catalog.text, per::pg_catalog.text, burst::pg_catalog.text, weight::pg_catalog.text]) $fn$;

comment on function set_group is 'Replaces the policy of a group, or with * that of all groups without one: how many jobs run at a time, how many start in a time, and its weight. Null sets nothing, and a policy that sets nothing is deleted. Errors: 42P01, 22023, 23514.';

create or replace function hold_group(queue text, group_key text, hold_for interval, reason text default null) returns void
language sql volatile as $fn$ select {schema}._call(queue, 'hold_group($1[1], $1[2]::interval, $1[3])', array[group_key, hold_for::pg_catalog.text, reason]) $fn$;

comment on function hold_group is 'Lets no job of a group start for a time from now. It does not shorten an earlier hold; interval 0 ends it. Errors: 42P01, 22023, 23514.';

create or replace function group_policies(queue text, after text default '', most int default 1000)
returns table (group_key text, max_running int, rate int, per interval, burst int, weight int, tokens int, held_until timestamptz, reason text)
language plpgsql volatile as $fn$ begin
    return query execute pg_catalog.concat('select * from ', {schema}._queue_function(queue, 'group_limits'), '(null, $1, $2)') using after, most;
end $fn$;

comment on function group_policies is 'Lists the groups that have a policy or are held, after one by name.';

create or replace function done_jobs(queue text, most int default 100, before text default null)
returns table (id bigint, kind text, key text, group_key text, priority smallint, attempt int, created_at timestamptz, claimed_at timestamptz, finished_at timestamptz, worker text, failures jsonb, report jsonb, "position" text)
language sql volatile as $fn$
    select d.id, d.kind, d.key, d.group_key, d.priority, d.attempt, d.created_at, d.claimed_at, d.finished_at, d.worker, d.failures, d.report, d."position"
      from pg_catalog.jsonb_to_recordset({schema}._done_of(queue, most, before, null) operator(pg_catalog.->) 'jobs')
        as d(id bigint, kind text, key text, group_key text, priority smallint, attempt int, created_at timestamptz, claimed_at timestamptz, finished_at timestamptz, worker text, failures jsonb, report jsonb, "position" text)
$fn$;

comment on function done_jobs is 'Lists kept jobs that are done, the latest first: up to most, behind the position of one.';

create or replace function find_job(queue text, id bigint)
returns table (id bigint, state text, kind text, key text, group_key text, priority smallint, attempt int, created_at timestamptz, claimed_at timestamptz, until timestamptz, ended_at timestamptz, worker text, error text, report jsonb)
language sql volatile as $fn$
    select j.*
      from pg_catalog.jsonb_to_record({schema}._call(queue, 'find($1[1]::bigint)', array[id::pg_catalog.text])::pg_catalog.jsonb)
        as j(id bigint, state text, kind text, key text, group_key text, priority smallint, attempt int, created_at timestamptz, claimed_at timestamptz, until timestamptz, ended_at timestamptz, worker text, error text, report jsonb)
     where j.state is not null
$fn$;

comment on function find_job is 'Returns where a job is: ready, delayed, waiting, running, dead or done. No row: it has ended and is not kept, or there was none. until is when a delayed job is due, or the lease of a running one ends. error is that of the last failed attempt, and report the handler''s last one.';

create or replace function maintain_queue(name text) returns void
language sql volatile as $fn$ select {schema}._call(name, 'maintain()') $fn$;

comment on function maintain_queue is 'Runs the maintenance of a queue, which calls also run now and then: leases that ended, jobs that are due, schedules, storage.';

$ddl$, '{schema}', quote_ident(current_schema())), '{prefix}', quote_literal(quote_ident(current_schema()) || '.')); end $do$;
