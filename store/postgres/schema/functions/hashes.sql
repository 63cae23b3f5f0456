-- The hashes of functions as they were made, so that a function that was changed or dropped is found.

-- _hashes returns the hashes of functions as they are now. It leaves out parts that another version of the server or a
-- session's settings write differently, such as defaults of arguments.
create or replace function _hashes(functions oid[]) returns table (name text, hash text)
language sql stable set search_path from current as $$
    select format('%s(%s)', p.proname, (select string_agg(t.typname, ', ' order by a.i) from unnest(p.proargtypes) with ordinality a(type, i) join pg_type t on t.oid = a.type)),
           md5(format('%s %s %s %s %s %s %s %s %s %s %s %s', l.lanname, t.typname, p.proretset, p.proargnames, p.proargmodes, p.pronargdefaults, p.prokind, p.provolatile,
                      p.proisstrict, p.prosecdef, p.proconfig, p.prosrc))
      from unnest(functions) f join pg_proc p on p.oid = f join pg_language l on l.oid = p.prolang join pg_type t on t.oid = p.prorettype $$;

-- _keep_hashes writes the hashes of functions that were just made.
create or replace function _keep_hashes(functions oid[]) returns void
language sql volatile set search_path from current as $$
    insert into _function_hash (name, hash) select h.name, h.hash from _hashes(functions) h
    on conflict (name) do update set hash = excluded.hash where _function_hash.hash <> excluded.hash $$;

-- _forget_hashes deletes the hashes of functions that are about to be dropped.
create or replace function _forget_hashes(functions oid[]) returns void
language sql volatile set search_path from current as $$ delete from _function_hash k using _hashes(functions) h where k.name = h.name $$;

-- _hashes_of_templates returns the hashes of the texts that functions are made of.
create or replace function _hashes_of_templates() returns table (name text, hash text)
language sql stable set search_path from current as $$ select format('template %s %s', t.kind, t.name), md5(t.body) from _template t $$;

-- _functions_of lists the functions of the schema: all of them, or only the shared ones and those of one queue.
create or replace function _functions_of(queue text) returns oid[]
language sql stable set search_path from current
as $$ select array(select p.oid from pg_proc p where p.pronamespace = quote_ident(current_schema())::regnamespace and _is_of(p.proname::text, queue)) $$;

-- _is_of returns whether a function, by its name, belongs to a queue or to none. It is true for all functions if queue is
-- null.
create or replace function _is_of(name text, queue text) returns boolean
language sql immutable as $$
    select queue is null or strpos(name, '.') = 0 and not starts_with(name, 'dequeue_') or split_part(name, '(', 1) = 'dequeue_' || queue
        or starts_with(name, '_' || queue || '.') and strpos(substr(name, length(queue) + 3), '.') = 0 $$;

-- _check_functions returns the hash of the files that the functions were made from, and the functions that were changed
-- or dropped since. It also returns those that run with the owner's rights and that PUBLIC may execute, as after a restore
-- into a cluster without the roles. Of the statements that pg_restore runs, a REVOKE fails together with the GRANT behind
-- it. Hashing all takes some ms for each queue. All roles may call it: a worker, which may read nothing here, also calls
-- it at its start.
create or replace function _check_functions(queue text default null, out files text, out changed text[])
language sql stable security definer set search_path from current as $$
    select (select max(f.hash) from _functions f),
           array(select k.name || case when h.name is null then ' is missing' else ' was changed' end
                   from _function_hash k left join (select * from _hashes(_functions_of(queue)) union all select * from _hashes_of_templates()) h on h.name = k.name
                  where _is_of(k.name, queue) and h.hash is distinct from k.hash order by k.name)
        || array(select h.name || ' may be executed by PUBLIC'
                   from _hashes(array(select p.oid from pg_proc p
                                       where p.oid = any (_functions_of(queue)) and p.prosecdef and p.proname <> '_check_functions'
                                         and exists (select from aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a where a.grantee = 0))) h
                  order by h.name) $$;
