-- How the functions of queues are made: those of each, and those that take a queue's name.

-- _fill puts a queue's names into the text of a function.
create or replace function _fill(body text, queue text) returns text
language plpgsql stable set search_path from current as $$
declare
    q    _queue := (select q from _queue q where q.name = queue);
    word text;
begin
    foreach word in array array['slots', 'mark', 'take', 'take_rows', 'take_keyed', 'enqueue', 'enqueue_many', 'first', 'claim', 'claim_keyed', 'room',
                                'promote', 'ack', 'extend', 'release', 'fail', 'cancel', 'cancel_all', 'groups', 'tick', 'refresh', 'expire', 'wake', 'tidy',
                                'pause', 'retry_dead', 'discard_dead', 'status'] loop
        body := replace(body, '{' || word || '}', _q(format('_%s.%s', queue, word)));
    end loop;
    foreach word in array array['ring', 'flags', 'seq', 'way', 'next', 'stale', 'seen', 'since'] loop
        body := replace(body, '{' || word || '}', quote_literal(_q(format('_%s.%s', queue, word))) || '::regclass');
    end loop;
    foreach word in array array['mark_slot', 'lease_slot', 'lease'] loop
        body := replace(body, '{' || word || case word when 'lease' then '_table' else '' end || '}', quote_literal(_q('_' || word)) || '::regclass');
    end loop;
    body := replace(body, '{raise}', _q(format('_%s.flags', queue)));
    body := replace(body, '{busy}', $sql$(exists (select from {schema}._lease l where l.queue = {id} and l.key = c.key)
                                            or exists (select from {schema}._later l where l.queue = {id} and l.key = c.key and l.id < c.id
                                                          and (l.attempt > 0 or l.due = 'infinity'))
                                            or exists (select from {queue} r where r.key = c.key and r.id < c.id)
                                            or exists (select from {queue} r where r.key = c.key and r.id is null and r.seq < c.id))$sql$);
    body := replace(body, '{now}', '(date_part(''epoch'', clock_timestamp()) * 40)::bigint');
    body := replace(body, '{lease_columns}', 'queue, attempt, lease_until, id, created_at, priority, worker, grp, key, headers, payload, failures');
    body := replace(body, '{lease_row}', '{id}, t.attempt + 1, until, coalesce(t.id, t.seq), t.created_at, t.priority, coalesce(worker, ''''), t.grp, t.key, t.headers, t.payload, t.failures');
    body := replace(body, '{leased_job}', 'l.id, l.key, l.grp, l.priority, l.attempt, l.created_at, l.headers, l.payload, l.lease, l.lease_until');
    body := replace(body, '{queue_table}', quote_literal(_q('_queue'::text)) || '::regclass');
    body := replace(body, '{tick_if_due}', _tick_if_due());
    body := replace(body, '{tick_register}', quote_literal(_q(format('_%s.tick', queue))) || '::regclass');
    body := replace(body, '{name}', quote_literal(queue));
    body := replace(body, '{queue}', _q(queue));
    body := replace(body, '{schema}', quote_ident(current_schema()));
    body := replace(body, '{id}', q.id::text);
    body := replace(body, '{lifo}', q.lifo::text);
    body := replace(body, '{dir}', case when q.lifo then 'desc' else 'asc' end);
    body := replace(body, '{beyond}', case when q.lifo then '<' else '>' end);
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
    upkeep := replace(_upkeep_functions(), '{rest}', _for_segments(queue, 'here', _rest_branch((select q.lifo from _queue q where q.name = queue))));
    upkeep := replace(upkeep, '{segments}', (select quote_literal(array_agg(_q(format('_%s.%s', queue, s.slot)) order by s.slot)) || '::regclass[]' from _slots(queue) s));
    execute _fill(_enqueue_functions() || replace(_lease_functions(), '{short_claims}', _choose('way', ways, claims)) || _key_functions() || _operate_functions() || upkeep, queue);
    for made in select p.oid::regprocedure::text from _own_functions(queue) p loop
        execute 'revoke execute on function ' || made || ' from public';
    end loop;
    perform _grant_as(queue, 'enqueue', '{flags}');
end $$;

-- _own_functions are those of one queue, or of one inbox.
create or replace function _own_functions(queue text) returns table (oid oid, name text)
language sql stable set search_path from current as $$
    select p.oid, n.name
      from pg_proc p, substr(p.proname::text, length(queue) + 3) n(name)
     where p.pronamespace = quote_ident(current_schema())::regnamespace and starts_with(p.proname::text, '_' || queue || '.') and position('.' in n.name) = 0
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

-- _dispatch_on makes a function that does, for each queue, what does says: a branch
-- for each, because a dynamic call costs several times a static one.
create or replace function _dispatch_on(head text, does text) returns void
language plpgsql set search_path from current as $$
declare
    names    text[];
    branches text[];
begin
    select array_agg(quote_literal(q.name) order by q.name collate "C"),
           array_agg(format(e'if queue_name = %L then\n%s\nend if;', q.name, _fill(does, q.name)) order by q.name collate "C")
      into names, branches from _queue q;
    execute 'create or replace function ' || head || ' language plpgsql volatile as $fn$
declare
    queue_name alias for $1;
begin
    ' || coalesce(_choose('queue_name collate "C"', names, branches), '') || '
    raise exception ''there is no queue %'', coalesce(quote_literal(queue_name), ''null'')
    using errcode = ''42P01'', hint = ''create it with: penstock queue create '' || coalesce(quote_literal(queue_name), ''NAME'');
end $fn$';
end $$;

-- _dispatch_jobs makes the functions that take a queue's name. They run as their
-- caller, who needs the right to what they call.
create or replace function _dispatch_jobs() returns void
language plpgsql set search_path from current as $$
begin
    perform _dispatch_on('enqueue_bytes(queue text, payload bytea, key text default null, grp text default '''', priority int default 0,
                                  not_before timestamptz default null, dedup_key text default null, headers jsonb default null) returns bigint',
        'return {enqueue}(payload, key, grp, priority, not_before, dedup_key, headers);');
    perform _dispatch_on('enqueue_many_bytes(queue text, payloads bytea[], keys text[] default null, grps text[] default null, priorities int[] default null,
                                       not_befores timestamptz[] default null, dedup_keys text[] default null, headers jsonb[] default null) returns setof bigint',
        'return query select {enqueue_many}(payloads, keys, grps, priorities, not_befores, dedup_keys, headers); return;');
    perform _dispatch_on('claim(queue text, n int default 1, lease interval default ''30 s'', grp text default '''', worker text default '''') returns setof leased_job',
        'return query select * from {claim}(n, lease, grp, worker); return;');
    perform _dispatch_on('ack_many(queue text, leases bigint[]) returns setof bigint',
        'return query select {ack}(leases); return;');
    perform _dispatch_on('ack(queue text, lease bigint) returns void',
        'if not exists (select from {ack}(array[lease])) then
            perform {schema}._lost(lease);
        end if;
        return;');
    perform _dispatch_on('extend_many(queue text, leases bigint[], by interval) returns setof bigint',
        'return query select e.lease from {extend}(leases, by) e; return;');
    perform _dispatch_on('extend(queue text, lease bigint, by interval) returns timestamptz',
        'return coalesce((select e.lease_until from {extend}(array[lease], by) e), {schema}._lost(lease));');
    perform _dispatch_on('release_many(queue text, leases bigint[]) returns setof bigint',
        'return query select {release}(leases); return;');
    perform _dispatch_on('release(queue text, lease bigint) returns void',
        'if not exists (select from {release}(array[lease])) then
            perform {schema}._lost(lease);
        end if;
        return;');
    perform _dispatch_on('retry(queue text, lease bigint, after interval default null, error text default '''') returns boolean',
        'return {fail}(lease, after, error, false);');
    perform _dispatch_on('bury(queue text, lease bigint, error text default '''') returns void',
        'perform {fail}(lease, null, error, true); return;');
    perform _dispatch_on('cancel(queue text, ids bigint[]) returns int',
        'return {cancel}(ids);');
    perform _dispatch_on('pause_queue(name text) returns void',
        'perform {pause}(true); return;');
    perform _dispatch_on('resume_queue(name text) returns void',
        'perform {pause}(false); return;');
    perform _dispatch_on('retry_dead_jobs(queue text, ids bigint[]) returns int',
        'return {retry_dead}(ids);');
    perform _dispatch_on('discard_dead_jobs(queue text, ids bigint[]) returns int',
        'return {discard_dead}(ids);');
    perform _dispatch_on('queue_status(queue text) returns table (ready bigint, running bigint, delayed bigint, waiting bigint, dead bigint, oldest interval)',
        'return query select * from {status}(); return;');
    perform _dispatch_on('maintain_queue(name text) returns void',
        'perform {tick}(true); return;');
    perform _dispatch_tick();
end $$;

-- The same for text and JSON, as UTF-8; see publish. In PL/pgSQL, because a function in SQL
-- is parsed at every call, and qualified instead of with a search_path of their own (0009).
do $do$
declare
    kind text;
begin
    foreach kind in array array['text', 'jsonb'] loop
        execute format($ddl$
create or replace function enqueue(queue text, payload %2$s, key text default null, grp text default '', priority int default 0,
                        not_before timestamptz default null, dedup_key text default null, headers jsonb default null) returns bigint
language plpgsql volatile as $fn$
begin
    return %1$I.enqueue_bytes(queue, pg_catalog.convert_to(payload::pg_catalog.text, 'UTF8'), key, grp, priority, not_before, dedup_key, headers);
end $fn$ $ddl$, current_schema(), kind);
    end loop;
    execute format($ddl$
create or replace function enqueue_many(queue text, payloads text[], keys text[] default null, grps text[] default null, priorities int[] default null,
                             not_befores timestamptz[] default null, dedup_keys text[] default null, headers jsonb[] default null) returns setof bigint
language plpgsql volatile as $fn$
begin
    return query select %1$I.enqueue_many_bytes(queue, array(select pg_catalog.convert_to(p.payload, 'UTF8') from pg_catalog.unnest(payloads) with ordinality p(payload, i) order by p.i),
                                                keys, grps, priorities, not_befores, dedup_keys, headers);
end $fn$ $ddl$, current_schema());
end $do$;
