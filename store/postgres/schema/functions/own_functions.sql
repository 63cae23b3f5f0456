-- How a queue's own functions are made, and who may call them.

-- _generated lists the functions that are made for each queue, besides dequeue_NAME: the steps of a job, and functions
-- that a role may be granted. Every other function exists once and takes a queue (docs/decisions/0011).
create or replace function _generated() returns text[]
language sql immutable set search_path from current as $$
    select '{skip_map,busy,ready,take,take_keyed,scan,enqueue,enqueue_many,flags,claim,ack,extend,report,release,fail,maintain,pause,cancel,retry_dead,discard_dead,count,count_groups,done_jobs}'::text[]
$$;

-- _define makes a queue's functions, or makes them anew.
create or replace function _define(queue text) returns void
language plpgsql set search_path from current as $$
declare
    made text;
begin
    execute _fill(_skip_map_functions() || _take_function() || _scan_function() || _dequeue_function()
                  || _enqueue_functions() || _lease_functions() || _key_functions() || _group_functions() || _door_functions(), queue);
    for made in select case when p.name = any (_generated()) then format('revoke execute on function %s from public', p.oid::regprocedure)
                            else format('drop function %s', p.oid::regprocedure) end
                  from _own_functions(queue) p loop
        execute made;
    end loop;
    execute format('revoke execute on function %s() from public', _q('dequeue_' || queue));
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
language sql stable set search_path from current as $$
    select array_remove(array(select p.oid from _own_functions(queue) p) || to_regprocedure(_q('dequeue_' || queue) || '()')::oid, null)
$$;

-- _grant_own lets a role call some functions that were made for a queue.
create or replace function _grant_own(queue text, names text[], role name) returns void
language plpgsql set search_path from current as $$
declare
    made text;
begin
    for made in select p.oid::regprocedure::text from _own_functions(queue) p where p.name = any (names) loop
        execute format('grant execute on function %s to %I', made, role);
    end loop;
end $$;
