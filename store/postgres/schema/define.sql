-- Runs after functions/, whenever these have changed: makes the functions of each queue and inbox.

drop function if exists _needed(text, regclass), _unsettled_by_any(text, regclass), _wants_read_committed(), _turn_on(_queue), _left_in(text, boolean, int), _taken_in(text),
    _truncate(text, text), _next_run(int, text), _maintain_if_due(), _used_segment(text, regclass[]), _pause(int, boolean), _idle_for(text), _discard_dead_jobs(int, bigint[]), _count_some(int, int); -- of earlier versions

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

select _close(_functions_of('')); -- the shared ones

grant insert (queue, waits_for, on_dead, outbox, id, key, topic, headers, payload), select (job) on _waiting_message to public; -- which looks at the caller's rights

delete from _function_hash;

select _keep_hashes(_functions_of(null));

insert into _function_hash (name, hash) select * from _hashes_of_templates();

select _own(null);
