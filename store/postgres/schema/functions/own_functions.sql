-- How a queue's own functions are made, and who may call them.

-- _generated lists the functions that are made for each queue, besides dequeue_NAME: the steps of a job, and functions
-- that a role may be granted. Every other function exists once and takes a queue (docs/decisions/0011).
create or replace function _generated() returns text[]
language sql immutable set search_path from current as $$
    select '{skip_map,busy,ready,take,take_keyed,candidates,pull,scan,enqueue,enqueue_many,barrier,flags,claim,draw,claim_scan,ack,extend,report,release,fail,maintain,pause,set_group,hold_group,group_limits,cancel,retry_dead,discard_dead,count,count_groups,done_jobs,find}'::text[]
$$;

-- _define makes a queue's functions, or makes them anew.
create or replace function _define(queue text) returns void
language plpgsql set search_path from current as $$ declare made text;
begin
    execute _fill((select string_agg(t.body, '' order by t.name) from _template t where t.kind = 'queue'), queue);
    for made in select format('drop function %s', p.oid::regprocedure) from _own_functions(queue) p where p.name <> all (_generated()) loop
        execute made;
    end loop;
    perform _close(_functions_of_queue(queue));
end $$;

-- _close decides which of some functions all roles may call: those that do no more than their caller may. These take a name and only
-- call what belongs to it, or are internal and run with their caller's rights. The others are for the owner, and for roles to which
-- a grant_ function gives them.
create or replace function _close(functions oid[]) returns void
language plpgsql set search_path from current as $$ declare
    everybodys constant text[] := '{
        dequeue, deduplicated, barrier, seal, publish_after, enqueue, enqueue_bytes, enqueue_many, enqueue_many_bytes, claim, ack_claim, ack, ack_many, extend, extend_many, release, release_many, retry, dead_letter, cancel, maintain_queue,
        pause_queue, resume_queue, dead_jobs, retry_dead_jobs, discard_dead_jobs, queue_status, queue_groups, ready_groups, set_group, hold_group, group_policies, report, done_jobs, find_job,
        check_client, inbox, inbox_many, inbox_in_order, inbox_in_order_bytes, inbox_due, inbox_held, inbox_gaps, inbox_release, inbox_discard, maintain_inbox, _check_functions}';
    change text;
begin
    for change in select format(case when p.proname = any (everybodys) or starts_with(p.proname, '_') and not p.prosecdef then 'grant execute on function %s to public'
                                     else 'revoke execute on function %s from public' end, p.oid::regprocedure)
                    from pg_proc p where p.oid = any (functions) loop
        execute change;
    end loop;
end $$;

-- _own_functions returns the functions that were made for one queue or one inbox.
create or replace function _own_functions(queue text) returns table (oid oid, name text)
language sql stable set search_path from current as $$
    select p.oid, n.name
      from pg_proc p, substr(p.proname::text, length(queue) + 3) n(name)
     where p.pronamespace = quote_ident(current_schema())::regnamespace and position('.' in n.name) = 0
       and p.proname >= ('_' || queue || '.')::name and p.proname < ('_' || queue || '/')::name -- by the index
$$;

-- _functions_of_queue lists the functions that were made for a queue, including dequeue_NAME.
create or replace function _functions_of_queue(queue text) returns oid[]
language sql stable set search_path from current
as $$ select array_remove(array(select p.oid from _own_functions(queue) p) || to_regprocedure(_q('dequeue_' || queue) || '()')::oid, null) $$;

-- _grant_own lets a role call some functions that were made for a queue or an inbox.
create or replace function _grant_own(queue text, names text[], role name) returns void
language plpgsql set search_path from current as $$ declare made text;
begin
    execute format('grant usage on schema %I to %I', current_schema(), role);
    for made in select p.oid::regprocedure::text from _own_functions(queue) p where p.name = any (names) loop
        execute format('grant execute on function %s to %I', made, role);
    end loop;
end $$;

-- _own gives objects of another role, of one outbox, queue or inbox, to the owner of the other tables, or of the
-- whole schema if name is null. _rotate, _reclaim and the functions of queues and inboxes run as that owner.
create or replace function _own(name text) returns void
language plpgsql set search_path from current as $$ declare
    owner constant regrole := (select c.relowner from pg_class c where c.oid = '_outbox'::regclass);
    made  text;
begin
    if owner = quote_ident(current_user)::regrole then return; end if;
    for made in
        select format('%s %s', case c.relkind when 'S' then 'sequence' when 'v' then 'view' when 'c' then 'type' else 'table' end, c.oid::regclass)
          from pg_class c
         where c.relnamespace = quote_ident(current_schema())::regnamespace and c.relkind in ('r', 'p', 'S', 'v', 'c') and c.relowner <> owner and pg_has_role(c.relowner, 'usage')
           and (_own.name is null or c.relname = _own.name or starts_with(c.relname::text, '_' || _own.name || '.'))
           and not exists (select from pg_depend d where d.classid = 'pg_class'::regclass and d.objid = c.oid and d.deptype = 'i' and c.relkind = 'S') -- an identity's goes with its table
        union all
        select format('function %s', p.oid::regprocedure)
          from unnest(case when _own.name is null then _functions_of(null) else _functions_of_queue(_own.name) end) f join pg_proc p on p.oid = f
         where p.proowner <> owner and pg_has_role(p.proowner, 'usage')
    loop
        execute format('alter %s owner to %s', made, owner);
    end loop;
end $$;
