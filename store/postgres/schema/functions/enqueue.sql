-- Enqueueing by functions: with checks that explain themselves, delays and dedup keys.
--
-- Like _take_function these texts are a queue's own functions, and so are those of
-- lease.sql, keys.sql, queue_groups.sql and doors.sql: _define makes them. They run as the schema's owner: a role may
-- do what it was granted of them, and nothing to other queues.

-- _enqueue_functions returns the text of a queue's functions that enqueue.
create or replace function _enqueue_functions() returns text
language sql immutable set search_path from current as $text$ select _qualified($$

-- {enqueue} writes one job and returns its id; of a duplicate, the first one's. Mostly it is one expression and a plain INSERT, at
-- which the queue's trigger looks; without a search_path, as dequeue_NAME.
create or replace function {enqueue}(payload bytea, key text, group_key text, priority int, not_before timestamptz, dedup_key text, headers jsonb) returns bigint
language plpgsql volatile security definer as $fn$
declare
    made bigint;
begin
    if not_before is null and dedup_key is null and coalesce(priority, 0) >= '-16' and coalesce(priority, 0) <= '15'
       and coalesce(current_setting('penstock.deduplicated_0', true), '') = '' then
        insert into {queue} (key, group_key, priority, headers, payload)
        values (key, coalesce(group_key, ''), coalesce(priority, 0), headers, payload) returning seq into made;
        return made;
    end if;
    return (select e.id from {enqueue_many}(array[payload], array[key], array[group_key], array[priority], array[not_before], array[dedup_key], array[headers]) e(id));
end $fn$;
$$) || $$

-- {raise} raises flags, see _validate_job: those up to {keyed}.
create or replace function {raise}(wanted bigint) returns void
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $fn$
begin
    perform {schema}._write_flags({flags}, wanted & ({keyed} * 2 - 1));
end $fn$;

-- {enqueue_many} writes a job for each payload and returns their ids in order. Without delays and dedup keys that is one INSERT. With these it goes
-- job by job: all keys are locked first, in one order; a delayed job goes to _scheduled; of a duplicate the first one's id is returned.
create or replace function {enqueue_many}(payloads bytea[], keys text[], group_keys text[], priorities int[], not_befores timestamptz[], dedup_keys text[], headers jsonb[]) returns setof bigint
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $fn$
declare
    many constant int := coalesce(cardinality(payloads), 0);
    keyed constant boolean := array_remove(dedup_keys, null) <> '{}';
    made bigint;
    known boolean;
    letters text = '';
    part int = 0;
    job record;
begin
    if coalesce(cardinality(keys), many) <> many or coalesce(cardinality(group_keys), many) <> many or coalesce(cardinality(priorities), many) <> many
       or coalesce(cardinality(not_befores), many) <> many or coalesce(cardinality(dedup_keys), many) <> many or coalesce(cardinality(headers), many) <> many then
        raise exception 'the arrays differ in length' using errcode = '22023', hint = 'give each as many elements as payloads, or null instead of the array';
    end if;
    while current_setting('penstock.deduplicated_' || part, true) <> '' loop -- they tell of this call, a letter per job: 1000 each, because deduplicated goes over all of one
        perform set_config('penstock.deduplicated_' || part, '', true);
        part := part + 1;
    end loop;
    if array_remove(not_befores, null) <> '{}' or keyed then
        {readable many}
        perform {schema}._refuse_job(u.payload, u.key, u.group_key, u.priority, u.headers, u.dedup_key)
           from unnest(payloads, keys, group_keys, priorities, headers, dedup_keys) u(payload, key, group_key, priority, headers, dedup_key);
        if keyed then
            perform {schema}._hold_keys({id}, dedup_keys); -- all before the first, so that two calls do not wait for each other
        end if;
        -- Never by subscripts: to find an element of texts goes over all before it.
        for job in select * from unnest(payloads, keys, group_keys, priorities, not_befores, dedup_keys, headers) with ordinality
                            u(payload, key, group_key, priority, not_before, dedup_key, headers, i) order by i loop
            made := case when job.dedup_key is not null then {schema}._first_of({id}, job.dedup_key) end;
            known := made is not null;
            if known then
                null; -- it is there
            elsif job.not_before > clock_timestamp() then
                if job.not_before = 'infinity' then -- in _scheduled that means something else
                    raise exception 'not_before is infinity' using errcode = '22023', hint = 'give a time, or do not enqueue the job yet';
                end if;
                made := nextval({seq});
                insert into {schema}._scheduled (id, queue, attempt, due, created_at, priority, group_key, key, headers, payload)
                values (made, {id}, 0, job.not_before, clock_timestamp(), coalesce(job.priority, 0), coalesce(job.group_key, ''), job.key, job.headers, job.payload);
            else
                insert into {queue} (key, group_key, priority, headers, payload)
                values (job.key, coalesce(job.group_key, ''), coalesce(job.priority, 0), job.headers, job.payload) returning seq into made;
            end if;
            if job.dedup_key is not null and not known then
                insert into {schema}._dedup (queue, id, dedup_key) values ({id}, made, job.dedup_key);
            end if;
            if keyed then
                letters := concat(letters, known);
                if job.i % 1000 = 0 or job.i = many then
                    perform set_config('penstock.deduplicated_' || (job.i - 1) / 1000, letters, true);
                    letters := '';
                end if;
            end if;
            return next made;
        end loop;
        return;
    end if;
    if cardinality(priorities) > 0 then -- at all else the queue's trigger looks
        perform {schema}._refuse_job('', null, null, p, null, null) from unnest(priorities) p where p not between -16 and 15;
    end if;
    return query
    insert into {queue} (key, group_key, priority, headers, payload)
    select j.key, coalesce(j.group_key, ''), coalesce(j.priority, 0), j.headers, j.payload
      from unnest(payloads, keys, group_keys, priorities, headers) j(payload, key, group_key, priority, headers)
    returning seq;
end $fn$;

$$ $text$;

-- _first_of returns the id of the job that a dedup_key stands for, null once the key's window has passed.
create or replace function _first_of(queue int, key text) returns bigint
language plpgsql volatile set search_path from current set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
declare
    since constant timestamptz := clock_timestamp() - (select q.dedup_window from _queue q where q.id = queue);
    made  bigint;
    leaf  int;
begin
    foreach leaf in array _listed('_dedup_slot') loop
        if leaf = 0 then
            made := (select d.id from _dedup_0 d where d.queue = _first_of.queue and d.dedup_key = key and d.at > since order by d.at desc limit 1);
        else
            made := (select d.id from _dedup_1 d where d.queue = _first_of.queue and d.dedup_key = key and d.at > since order by d.at desc limit 1);
        end if;
        exit when made is not null;
    end loop;
    return made;
end $$;
