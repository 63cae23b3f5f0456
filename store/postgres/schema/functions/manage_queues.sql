-- Functions that people call for queues: settings, dead letters, dropping, and who may do what.

-- _queue_named returns a queue, or raises 42P01.
create or replace function _queue_named(queue text) returns _queue
language plpgsql stable set search_path from current as $$ declare q _queue;
begin
    select * into q from _queue x where x.name = queue;
    if not found then
        raise exception 'there is no queue %', coalesce(quote_literal(queue), 'null')
        using errcode = '42P01', hint = 'create it with: penstock queue create ' || coalesce(quote_literal(queue), 'NAME');
    end if;
    return q;
end $$;

create or replace function set_queue(name text, max_attempts int default null, max_running int default null, dedup_window interval default null,
                                     keep_done interval default null, keep_done_bytes bigint default null,
                                     rate int default null, per interval default null, burst int default null) returns void
language plpgsql set search_path from current as $$ declare q _queue := _queue_named(name);
begin
    if max_attempts < 1 then
        raise exception 'max_attempts is %, expected at least 1', max_attempts using errcode = '22023', hint = 'with 1 a job that fails is a dead letter at once';
    elsif max_running < 0 then
        raise exception 'max_running is %, expected at least 0', max_running using errcode = '22023', hint = '0 means no limit; pause_queue stops a queue';
    elsif dedup_window <= interval '0' or dedup_window > interval '1000 years' then
        raise exception 'dedup_window is %, expected more than nothing and at most 1000 years', dedup_window using errcode = '22023', hint = 'for example interval ''1 hour''';
    elsif keep_done < interval '0' or keep_done > interval '1000 years' then
        raise exception 'keep_done is %, expected nothing to 1000 years', keep_done using errcode = '22023', hint = 'for example interval ''1 day''; interval ''0'' keeps nothing';
    elsif keep_done_bytes < 1048576 then
        raise exception 'keep_done_bytes is %, expected at least 1048576', keep_done_bytes using errcode = '22023', hint = 'keep_done interval ''0'' keeps nothing';
    end if;
    if rate <> 0 or rate is null then perform _refuse_rate(rate, per, burst); end if;
    if keep_done is not null then
        perform pg_advisory_xact_lock('_queue'::regclass::oid::int, 0); -- as every call that makes functions
    end if;
    update _queue x set max_attempts = coalesce(set_queue.max_attempts, x.max_attempts),
                        max_running  = nullif(coalesce(set_queue.max_running, x.max_running), 0),
                        dedup_window = coalesce(set_queue.dedup_window, x.dedup_window),
                        keep_done    = nullif(coalesce(set_queue.keep_done, x.keep_done), interval '0'),
                        keep_done_bytes = coalesce(set_queue.keep_done_bytes, x.keep_done_bytes),
                        rate         = nullif(coalesce(set_queue.rate, x.rate), 0),
                        per          = case when set_queue.rate is null then x.per when set_queue.rate > 0 then set_queue.per end,
                        burst        = case when set_queue.rate is null then x.burst when set_queue.rate > 0 then set_queue.burst end
     where x.id = q.id
    returning x.* into q;
    perform _watch(q.id);
    if keep_done is not null then -- {ack} and {claim} have it in their texts
        if q.keep_done is not null and q.done_since is null then perform _make_history(q); end if;
        perform _define(q.name);
        perform _keep_hashes(_functions_of_queue(q.name));
        perform _own(q.name);
    end if;
end $$;

comment on function set_queue is 'Changes settings of a queue; null leaves one as it is, and max_running 0 lifts the limit. At most rate jobs start in per, and burst of them at once; rate 0 lifts that. keep_done is how long done jobs are kept, within keep_done_bytes; 0 keeps none. Errors: 42P01, 22023.';

-- _pause_drop is the pause after which a drop tries again. It ends the drop after statement_timeout. PostgreSQL does so as well, unless that time
-- and lock_timeout have both passed when the process looks, as after a stop of the machine. Then it reports the lock alone.
create or replace function _pause_drop() returns void
language plpgsql set search_path from current as $$ begin
    if current_setting('statement_timeout') <> '0' and clock_timestamp() > statement_timestamp() + current_setting('statement_timeout')::interval then
        raise exception 'canceling statement due to statement timeout' using errcode = '57014';
    end if;
    perform pg_sleep(0.05 + 0.1 * random());
end $$;

create or replace function drop_queue(name text) returns void
language plpgsql set search_path from current set lock_timeout = '50ms' as $$ declare q _queue;
begin
    -- Workers lock its segments, its table and its registers in any order. So it has all locks within
    -- moments, or gives them back and tries again. No session waits for it for long while holding a lock that
    -- it needs.
    loop
        begin
            perform pg_advisory_xact_lock('_queue'::regclass::oid::int, 0);
            q := _queue_named(name);
            perform _forget_hashes(_functions_of_queue(q.name));
            execute (select 'drop function ' || string_agg(f::regprocedure::text, ', ') from unnest(_functions_of_queue(q.name)) f);
            execute 'drop table ' || concat_ws(', ', _q(q.name), to_regclass(_q(format('_%s.done', q.name)))::text);
            execute (select 'drop sequence ' || string_agg(c.oid::regclass::text, ', ') from pg_class c
                      where c.relnamespace = quote_ident(current_schema())::regnamespace and c.relkind = 'S' and starts_with(c.relname::text, '_' || q.name || '.')
                        and position('.' in substr(c.relname::text, length(q.name) + 3)) = 0);
            delete from _lease where queue in (q.id, -q.id);
            delete from _scheduled where queue in (q.id, -q.id);
            delete from _dedup where queue = q.id;
            delete from _group_state where queue in (q.id, -q.id);
            delete from _barrier where queue = q.id;
            delete from _queue where id = q.id;
            return;
        exception when lock_not_available then
            perform _pause_drop();
        end;
    end loop;
end $$;

comment on function drop_queue is 'Removes a queue with its jobs, dead letters and schedules. Error: 42P01.';

create or replace function grant_enqueuer(queue text, role name) returns void
language plpgsql set search_path from current as $$ declare q _queue := _queue_named(queue);
begin
    execute format($ddl$
        grant insert (key, group_key, priority, headers, payload) on table %2$s to %1$I;
        grant usage on sequence %3$s to %1$I;
        grant select on sequence %4$s, %5$s to %1$I$ddl$,
        role, _q(q.name), _q(format('_%s.seq', q.name)), _q(format('_%s.ring', q.name)), _q(format('_%s.flags', q.name)));
    perform _grant_own(q.name, '{enqueue,enqueue_many,barrier,flags,find}', role);
end $$;

comment on function grant_enqueuer is 'Lets a role write jobs to one queue, by enqueue or by a plain INSERT of the columns that belong to it, and look up by find_job where they are. It can do nothing else.';

create or replace function grant_worker(queue text, role name) returns void
language plpgsql set search_path from current as $$ declare q _queue := _queue_named(queue);
begin
    execute format('grant select on sequence %2$s to %1$I; grant execute on function %3$s() to %1$I',
                   role, _q(format('_%s.maintained', q.name)), _q('dequeue_' || q.name));
    perform _grant_own(q.name, '{take,claim,ack,ready,extend,report,release,fail,maintain,hold_group,find}', role);
end $$;

comment on function grant_worker is 'Lets a role run the jobs of one queue, and do its maintenance. It can hold groups. It can neither enqueue nor read the payloads of jobs that it has not claimed.';

create or replace function grant_operator(queue text, role name) returns void
language plpgsql set search_path from current as $$ declare q _queue := _queue_named(queue);
begin
    execute format('grant select on table _migration, _queue, _dead_job, _sample to %1$I; grant select on sequence %2$s to %1$I',
                   role, _q(format('_%s.ring', q.name)));
    perform _grant_own(q.name, '{pause,set_group,hold_group,group_limits,cancel,retry_dead,discard_dead,count,count_groups,done_jobs,find}', role);
end $$;

comment on function grant_operator is 'Lets a role look after one queue. It sees the queue''s status and its dead letters with their payloads; it can pause and resume the queue, cancel jobs, retry and discard dead letters. It can set policies of groups, and hold groups. It can neither enqueue nor run jobs, nor change settings of the queue. It sees the names and settings of other queues.';
