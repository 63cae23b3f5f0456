-- How a queue's own functions are made, and who may call them.

-- _generated are the functions that a queue has of its own, beside dequeue_NAME: what each job goes through, and what
-- of the rest a role may be granted. All else is there once and takes a queue (docs/decisions/0011).
create or replace function _generated() returns text[]
language sql immutable set search_path from current as $$
    select '{slots,newest,seqs,mark,busy,ready,counts,take,take_rows,take_keyed,look,aim,enqueue,enqueue_many,first,flags,claim,promote,ack,work,fail,
             tick,refresh,expire,wake,tidy,cancel,operate}'::text[]
$$;

-- _fill puts a queue's names into the text of a function.
create or replace function _fill(body text, queue text) returns text
language plpgsql stable set search_path from current as $$
declare
    q    _queue := (select q from _queue q where q.name = queue);
    word text;
begin
    body := _with_leaves(body);
    foreach word in array array_remove(_generated(), 'flags') loop -- {flags} is a register, see {raise}
        body := replace(body, '{' || word || '}', _q(format('_%s.%s', queue, word)));
    end loop;
    foreach word in array array['ring', 'flags', 'seq', 'way', 'next', 'stale', 'seen', 'since'] loop
        body := replace(body, '{' || word || '}', quote_literal(_q(format('_%s.%s', queue, word))) || '::regclass');
    end loop;
    foreach word in array array['mark_slot', 'lease_slot', 'later_slot', 'dedup_slot', 'lease'] loop
        body := replace(body, '{' || word || case word when 'lease' then '_table' else '' end || '}', quote_literal(_q('_' || word)) || '::regclass');
    end loop;
    body := replace(body, '{raise}', _q(format('_%s.flags', queue)));
    body := replace(body, '{now}', '(date_part(''epoch'', clock_timestamp()) * 40)::bigint');
    body := replace(body, '{lease_columns}', 'queue, attempt, lease_until, id, created_at, priority, worker, grp, key, headers, payload, failures');
    body := replace(body, '{lease_row}', '{id}, t.attempt + 1, until, coalesce(t.id, t.seq), t.created_at, t.priority, coalesce(worker, ''''), t.grp, t.key, t.headers, t.payload, t.failures');
    body := replace(body, '{leased_job}', 'l.id, l.key, l.grp, l.priority, l.attempt, l.created_at, l.headers, l.payload, l.lease, l.lease_until');
    body := replace(body, '{queue_table}', quote_literal(_q('_queue'::text)) || '::regclass');
    body := replace(body, '{tick_if_due}', _tick_if_due());
    body := replace(body, '{tick_register}', quote_literal(_q(format('_%s.tick', queue))) || '::regclass');
    body := replace(body, '{name}', quote_literal(queue));
    body := replace(_with_segments(body, queue), '{queue}', _q(queue));
    body := replace(body, '{schema}', quote_ident(current_schema()));
    body := replace(body, '{id}', q.id::text);
    body := replace(body, '{lifo}', q.lifo::text);
    body := replace(body, '{dir}', case when q.lifo then 'desc' else 'asc' end);
    body := replace(body, '{last_first}', case when q.lifo then 'asc' else 'desc' end);
    body := replace(body, '{beyond}', case when q.lifo then '<' else '>' end);
    body := replace(body, '{older_first}', case when q.lifo then 'in reverse cardinality(slots) .. 1' else 'in 1 .. cardinality(slots)' end);
    return replace(body, '{start}', case when q.lifo then '9223372036854775807' else '-1' end);
end $$;

-- _define_jobs makes a queue's functions, or makes them anew.
create or replace function _define_jobs(queue text) returns void
language plpgsql set search_path from current as $$
declare
    made   text;
    ways   text[];
    claims text[];
    upkeep text;
begin
    select array_agg((g.slot * 2 + l)::text order by g.slot, l),
           array_agg(replace(replace(_short_claim(), '{segment}', _q(format('_%s.%s', queue, g.slot))), '{lease_slot}', l::text) order by g.slot, l)
      into ways, claims from _slots(queue) g, generate_series(0, 1) l;
    upkeep := replace(_upkeep_functions(), '{segments}', (select quote_literal(array_agg(_q(format('_%s.%s', queue, s.slot)) order by s.slot)) || '::regclass[]' from _slots(queue) s));
    execute _fill(_enqueue_functions() || replace(_lease_functions(), '{short_claims}', _choose('way', ways, claims)) || _key_functions() || _group_functions() || _operate_functions() || upkeep, queue);
    for made in select case when p.name = any (_generated()) then format('revoke execute on function %s from public', p.oid::regprocedure)
                            else format('drop function %s', p.oid::regprocedure) end -- of an older version
                  from _own_functions(queue) p loop
        execute made;
    end loop;
    perform _grant_as(queue, 'enqueue', '{flags}');
    perform _grant_as(queue, 'fail', '{work}');
    perform _grant_as(queue, 'cancel', '{operate}');
    perform _grant_as(queue, 'claim', '{ready}');
    perform _grant_as(queue, 'operate', '{counts}');
end $$;

-- _own_functions are those of one queue, or of one inbox.
create or replace function _own_functions(queue text) returns table (oid oid, name text)
language sql stable set search_path from current as $$
    select p.oid, n.name
      from pg_proc p, substr(p.proname::text, length(queue) + 3) n(name)
     where p.pronamespace = quote_ident(current_schema())::regnamespace and position('.' in n.name) = 0
       and p.proname >= ('_' || queue || '.')::name and p.proname < ('_' || queue || '/')::name -- by the index
$$;

create or replace function _functions_of_queue(queue text) returns oid[]
language sql stable set search_path from current as $$
    select array_remove(array(select p.oid from _own_functions(queue) p) || to_regprocedure(_q('dequeue_' || queue) || '()')::oid, null)
$$;

-- _grant_own lets a role call some of them.
create or replace function _grant_own(queue text, names text[], role name) returns void
language plpgsql set search_path from current as $$
declare
    made text;
begin
    for made in select p.oid::regprocedure::text from _own_functions(queue) p where p.name = any (names) loop
        execute format('grant execute on function %s to %I', made, role);
    end loop;
end $$;

-- _grant_as lets whoever may call one of them call others: a queue's functions change, its roles do not.
create or replace function _grant_as(queue text, name text, names text[]) returns void
language plpgsql set search_path from current as $$
begin
    perform _grant_own(queue, names, r.rolname)
       from _own_functions(queue) o join pg_proc p on p.oid = o.oid cross join lateral aclexplode(p.proacl) a join pg_roles r on r.oid = a.grantee
      where o.name = _grant_as.name and a.privilege_type = 'EXECUTE' and a.grantee <> p.proowner;
end $$;
