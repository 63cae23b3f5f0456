-- Runs after functions/, whenever these have changed: makes the functions of each queue and inbox.

do $$
declare
    queue text;
    inbox int;
    role  name;
begin
    -- As create_queue and create_inbox do: what is made here, one at a time makes.
    perform pg_advisory_xact_lock('_queue'::regclass::oid::int, 0), pg_advisory_xact_lock('_inbox'::regclass::oid::int, 0);
    if not exists (select from pg_policy p where p.polrelid = '_dead_job'::regclass and p.polname = 'operator') then
        create policy operator on _dead_job for select using (queue in (
            select q.id from _queue q where has_function_privilege(to_regproc(_q(format('_%s.cancel', q.name))), 'execute')));
    end if;
    if not exists (select from pg_policy p where p.polrelid = '_sample'::regclass and p.polname = 'operator') then
        create policy operator on _sample for select using (series in (
            select its.id from _queue its where has_function_privilege(to_regproc(_q(format('_%s.cancel', its.name))), 'execute')));
    end if;
    if not exists (select from pg_trigger t where t.tgrelid = '_maintenance'::regclass and t.tgname = 'maintenance') then
        create constraint trigger maintenance after insert on _maintenance deferrable initially deferred
        for each row execute function _maintain_at_commit();
    end if;
    if not exists (select from pg_trigger t where t.tgrelid = '_barrier'::regclass and t.tgname = 'turn') then
        create constraint trigger turn after insert on _barrier deferrable initially deferred
        for each row when ((new.part < 0 or new.part = 17) and new.xid = pg_current_xact_id()) execute function _turn_barriers();
    end if;
    for queue in select q.name from _queue q order by q.id loop
        perform _define(queue);
    end loop;
    for inbox in select i.id from _inbox i order by i.id loop
        perform _define_inbox(inbox);
    end loop;
    perform _dispatch_inboxes();
    for role in select r from _relay_roles() r loop
        perform grant_relay(role);
    end loop;
end $$;

-- Who may call what. Roles get the rights on one outbox, queue or inbox from the grant_
-- functions. All roles may call those that take a name and only call what belongs to it: they do no
-- more than the caller may.
do $$
declare
    everybodys constant text[] := '{
        dequeue, deduplicated, barrier, seal, publish_after, enqueue, enqueue_bytes, enqueue_many, enqueue_many_bytes, claim, ack_claim, ack, ack_many, extend, extend_many, release, release_many, retry, dead_letter, cancel, maintain_queue,
        pause_queue, resume_queue, dead_jobs, retry_dead_jobs, discard_dead_jobs, queue_status, queue_groups, ready_groups, set_group, hold_group, group_policies, report, done_jobs,
        check_client, inbox, inbox_many, inbox_in_order, inbox_in_order_bytes, inbox_due, inbox_held, inbox_gaps, inbox_release, inbox_discard, maintain_inbox,
        _q, _queue_function, _call, _count_of, _done_of, _read_committed, _refuse_headers, _refuse_job, _validate_message, _refuse_options, _deadline, _with_options, _lost, _check_functions}'; -- these only look, or call what the caller may
    made regprocedure;
begin
    execute format('revoke execute on all functions in schema %I from public', current_schema());
    for made in select p.oid from pg_proc p
                 where p.pronamespace = quote_ident(current_schema())::regnamespace and p.proname = any (everybodys) loop
        execute format('grant execute on function %s to public', made);
    end loop;
    grant insert (queue, waits_for, on_dead, outbox, id, key, topic, headers, payload), select (job) on _waiting_message to public; -- which looks at the caller's rights
end $$;

delete from _function_hash;

select _keep_hashes(_functions_of(null));

insert into _function_hash (name, hash) select * from _hashes_of_templates();

select _own(null);
