-- Enqueueing by functions: with checks that explain themselves, delays and dedup keys.
--
-- The template is of a queue's own functions, like those of take.sql, lease.sql, keys.sql, queue_groups.sql and doors.sql:
-- _define makes them. They run as the schema's owner: a role may do what it was granted of them, and nothing to other queues.

insert into _template (kind, name, body) select 'queue', 'enqueue', _qualified($$

-- {enqueue} writes one job and returns its id; of a duplicate, the first one's. Mostly it is one expression and a plain INSERT, at
-- which the queue's trigger looks; without a search_path, as dequeue_NAME. _place handles a delay, a dedup key, a unique key and barriers to wait for.
create or replace function {enqueue}(payload bytea, key text, group_key text, priority int, not_before timestamptz, dedup_key text, headers jsonb) returns bigint
language plpgsql volatile security definer as $fn$ declare
    made   bigint;
    placed record;
begin
    if not_before is null and dedup_key is null and (headers operator(pg_catalog.?|) '{penstock-unique-key,penstock-waits-for}') is not true and coalesce(priority, 0) >= '-16' and coalesce(priority, 0) <= '15'
       and coalesce(current_setting('penstock.deduplicated_0', true), '') = '' then
        insert into {queue} (key, group_key, priority, headers, payload)
        values (key, coalesce(group_key, ''), coalesce(priority, 0), headers, payload) returning seq into made;
        return made;
    end if;
    key := coalesce(key, headers operator(pg_catalog.->>) 'penstock-unique-key');
    select x.* into placed from {schema}._place({id}, {seq}, array[payload], array[key], array[group_key], array[priority], array[not_before], array[dedup_key], array[headers]) x;
    if not placed.known[1] then
        insert into {queue} (seq, key, group_key, priority, headers, payload)
        values (placed.ids[1], key, coalesce(group_key, ''), coalesce(priority, 0), headers, payload);
    end if;
    return placed.ids[1];
end $fn$;
$$) || $$

-- {raise} raises flags, see _validate_job: priorities and keys (bits 0 to 32), deadlines (35) and barriers (36). It cannot lower one, nor raise that of a pause (33, 34).
create or replace function {raise}(wanted bigint) returns void
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
as $fn$ begin perform {schema}._write_flags({flags}, wanted & ({keyed} * 2 - 1 | {dated})); end $fn$;

-- {enqueue_many} writes a job for each payload and returns their ids in order. It writes them with one INSERT. _place handles delays, dedup keys and unique
-- keys before that.
create or replace function {enqueue_many}(payloads bytea[], keys text[], group_keys text[], priorities int[], not_befores timestamptz[], dedup_keys text[], headers jsonb[]) returns setof bigint
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $fn$ declare
    many   constant int := coalesce(cardinality(payloads), 0);
    one    boolean := false; -- has a unique key, or waits for barriers
    placed record;
begin
    if coalesce(cardinality(keys), many) <> many or coalesce(cardinality(group_keys), many) <> many or coalesce(cardinality(priorities), many) <> many
       or coalesce(cardinality(not_befores), many) <> many or coalesce(cardinality(dedup_keys), many) <> many or coalesce(cardinality(headers), many) <> many then
        raise exception 'the arrays differ in length' using errcode = '22023', hint = 'give each as many elements as payloads, or null instead of the array';
    end if;
    if headers is not null then
        one := exists (select from unnest(headers) h where h ?| '{penstock-unique-key,penstock-waits-for}');
        if one then
            keys := array(select coalesce(j.key, j.header ->> 'penstock-unique-key') from rows from (unnest(keys), unnest(headers)) with ordinality j(key, header, n) order by j.n);
        end if;
    end if;
    if one or array_remove(not_befores, null) <> '{}' or array_remove(dedup_keys, null) <> '{}' or current_setting('penstock.deduplicated_0', true) <> '' then
        select * into placed from {schema}._place({id}, {seq}, payloads, keys, group_keys, priorities, not_befores, dedup_keys, headers);
        insert into {queue} (seq, key, group_key, priority, headers, payload)
        select j.id, j.key, coalesce(j.group_key, ''), coalesce(j.priority, 0), j.headers, j.payload
          from unnest(placed.ids, placed.known, payloads, keys, group_keys, priorities, headers) j(id, known, payload, key, group_key, priority, headers)
         where not j.known;
        return query select unnest(placed.ids);
        return;
    end if;
    if cardinality(priorities) > 0 then -- at all else the queue's trigger looks
        perform {schema}._refuse_job('', null, null, p, null, null) from unnest(priorities) p where p not between -16 and 15;
    end if;
    return query insert into {queue} (key, group_key, priority, headers, payload)
    select j.key, coalesce(j.group_key, ''), coalesce(j.priority, 0), j.headers, j.payload
      from unnest(payloads, keys, group_keys, priorities, headers) j(payload, key, group_key, priority, headers)
    returning seq;
end $fn$;

$$;

-- _place draws the ids of jobs with delays, dedup keys or unique keys and returns them in order; a duplicate has the id of the job that was there. It writes
-- what is delayed or waits for barriers to _scheduled and the dedup keys to _dedup; known are these and duplicates, and its caller writes the others. Unique jobs that
-- have a twin, or might have one among the others, are left to _enqueue_unique. It locks all keys first, in one
-- order, so that two calls do not wait for each other. For deduplicated it notes which jobs are known: a letter for each job, 1000 letters in a setting,
-- because deduplicated reads a whole setting.
create or replace function _place(queue int, seq regclass, payloads bytea[], keys text[], group_keys text[], priorities int[], not_befores timestamptz[], dedup_keys text[],
                                  headers jsonb[], out ids bigint[], out known boolean[], out at timestamptz)
language plpgsql volatile set search_path from current as $$ declare
    unique_keys constant text[] := case when headers is not null then array(select u.h ->> 'penstock-unique-key' from unnest(headers) with ordinality u(h, i) order by u.i) end;
    uniques constant text[] := coalesce(array_remove(unique_keys, null), '{}');
    keyed   constant boolean := coalesce(array_remove(dedup_keys, null) <> '{}', false) or uniques <> '{}';
    twins   text[];           -- unique keys that have one
    told    boolean[] := '{}';
    part    int := 0;
    made    bigint;
    found   boolean;
    written boolean;
begin
    perform _refuse_job(u.payload, u.key, u.group_key, u.priority, u.headers, u.dedup_key),
            case when getdatabaseencoding() not in ('UTF8', 'SQL_ASCII') then convert_to(concat(u.key, u.group_key, u.dedup_key, u.headers), 'UTF8') end -- see _readable
       from unnest(payloads, keys, group_keys, priorities, headers, dedup_keys) u(payload, key, group_key, priority, headers, dedup_key);
    perform pg_current_xact_id(); -- before a seq, see create_queue
    if exists (select from unnest(headers) h where h ->> 'penstock-on-conflict' <> 'ignore' and h ?| '{penstock-holds,penstock-waits-for}') then
        raise exception 'barriers are given, and on_conflict is not ignore' using errcode = '23514', hint = 'a job that is replaced keeps its barriers: leave them out, or use ignore';
    end if;
    if keyed then
        perform _hold_keys(queue, dedup_keys || uniques);
        if uniques <> '{}' then
            twins := case when cardinality(uniques) > (select count(distinct u) from unnest(uniques) u) then uniques
                          else array(select distinct u.key from _unended(queue, uniques) u) end;
        end if;
        for i in 1 .. cardinality(payloads) loop
            made := case when dedup_keys[i] is not null then _first_of(queue, dedup_keys[i]) end;
            found := made is not null;
            written := not found and unique_keys[i] = any (twins);
            if written then
                select e.id, e.known into made, found from _enqueue_unique(queue, seq, payloads[i], group_keys[i], priorities[i], not_befores[i], headers[i]) e;
            end if;
            if dedup_keys[i] is not null and (made is null or written) then
                made := coalesce(made, nextval(seq));
                insert into _dedup (queue, id, dedup_key) values (_place.queue, made, dedup_keys[i]);
            end if;
            ids := ids || coalesce(made, nextval(seq));
            known := known || (found or coalesce(written, false));
            told := told || found;
        end loop;
    else
        select array_agg(nextval(seq)), array_agg(false) into ids, known from unnest(payloads);
    end if;
    at := clock_timestamp();
    if array_remove(not_befores, null) <> '{}' or exists (select from unnest(headers) h where h ? 'penstock-waits-for') then
        known := array(select j.known or j.later from unnest(known, _put_off(queue, at, ids, known, payloads, keys, group_keys, priorities, not_befores, headers)) with ordinality j(known, later, i) order by j.i);
    end if;
    while keyed and part * 1000 < cardinality(ids) or current_setting('penstock.deduplicated_' || part, true) <> '' loop
        perform set_config('penstock.deduplicated_' || part, case when keyed then array_to_string(told[part * 1000 + 1 : part * 1000 + 1000], '') else '' end, true);
        part := part + 1;
    end loop;
end $$;

-- _first_of returns the id of the job that a dedup_key stands for, null once the key's window has passed.
create or replace function _first_of(queue int, key text) returns bigint
language plpgsql volatile set search_path from current set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$ declare
    since constant timestamptz := clock_timestamp() - (select q.dedup_window from _queue q where q.id = queue);
    made  bigint;
    turn  constant bigint := pg_sequence_last_value('_dedup_slot'); leaf int;
begin
    foreach leaf in array _listed('_dedup_slot') loop
        if leaf = 0 then
            made := (select d.id from _dedup_0 d where d.queue = _first_of.queue and d.dedup_key = key and d.at > since order by d.at desc limit 1);
        else
            made := (select d.id from _dedup_1 d where d.queue = _first_of.queue and d.dedup_key = key and d.at > since order by d.at desc limit 1);
        end if;
        if made is not null then return made; end if;
    end loop;
    return case when turn <> pg_sequence_last_value('_dedup_slot') then _first_of(queue, key) end; -- the ring may have turned meanwhile
end $$;
