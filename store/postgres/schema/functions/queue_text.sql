-- The parts from which the texts of a queue's functions are put together.

-- _choose returns PL/pgSQL that runs one of several texts: the one whose key is the last that is not above the value. The keys are in order. Up to three
-- are compared one after the other; of a hundred texts it compares with seven, where CASE would compare with all.
create or replace function _choose(what text, keys int[], texts text[]) returns text
language plpgsql immutable set search_path from current as $$ declare half constant int := cardinality(keys) / 2;
begin
    if half < 2 then
        return (select string_agg(format(e'%s\n%s', case when i = cardinality(keys) then 'else'
                                                         else format('%s %s operator(pg_catalog.<) %s then', case i when 1 then 'if' else 'elsif' end, what, keys[i + 1]) end, texts[i]),
                                  '' order by i) || 'end if;' from generate_subscripts(keys, 1) i);
    end if;
    return format(e'if %s operator(pg_catalog.<) %s then\n%s\nelse\n%s\nend if;', what, keys[half + 1],
                  _choose(what, keys[1:half], texts[1:half]), _choose(what, keys[half + 1:], texts[half + 1:]));
end $$;

-- _fill puts a queue's names and numbers into the text of its functions. due makes the queue's maintenance run at the commit: every 250 ms, or if the clock was
-- set back. It replaces:
--
--   {word}                                from the table below: names, as literals where they are registers
--   {if fifo} ... {end if}                only in such a queue: fifo, lifo, kept (which keeps history), not kept
--   {leaf of lease} ... {end}             one of two, for the segment of _lease whose number the variable leaf holds; _scheduled, _dedup. Of _skip_map the one to be read
--   {segments here 1024} ... {end}        one for each segment of the queue, of which the variable here holds the number, above 1024
--
-- Names may hold any of that: they are put in with their braces hidden.
--
-- In statements that a session's first call runs, a number may be in quotes, and so takes the type of the operator's other
-- side. Where no operator exists for two types, as in bigint % integer, the search goes over all operators of that name.
create or replace function _fill(body text, queue text) returns text
language plpgsql stable set search_path from current as $$ declare
    q        constant _queue := (select q from _queue q where q.name = queue);
    kept     constant boolean := q.keep_done is not null;
    due      constant text := _qualified($due$
    if pg_catalog.abs((date_part('epoch'::pg_catalog.text, clock_timestamp()) * '1000')::bigint - pg_sequence_last_value({maintained})) >= 250
       and current_setting('transaction_isolation') = 'read committed' then
        insert into {schema}._maintenance (queue) values ({id});
    end if;$due$);
    slots    constant int[] := array(select s.slot from _segments(queue) s order by s.slot);
    segments constant text[] := array(select _hidden(_q(format('_%s.%s', queue, s))) from unnest(slots) s);
    parts    text[]; part text;
    head     text;
    block    text;
    word     text;
    what     text;
begin
    if queue ~ '[\n\r]' then -- it would end a comment that it is put into
        body := regexp_replace(body, '--[^\n]*', '', 'g');
    end if;
    parts := string_to_array(body, '{if ');
    body := parts[1];
    foreach part in array parts[2:] loop
        head := split_part(part, '}', 1);
        body := body || case when head = any (array[case when q.lifo then 'lifo' else 'fifo' end, case when kept then 'kept' else 'not kept' end])
                             then substr(split_part(part, '{end if}', 1), length(head) + 2) else '' end
                     || substr(part, position('{end if}' in part) + 8);
    end loop;

    parts := string_to_array(body, '{leaf of ');
    body := parts[1];
    foreach part in array parts[2:] loop
        head := split_part(part, '}', 1);
        block := substr(split_part(part, '{end}', 1), length(head) + 3);
        body := body || format(e'if %s = 0 then\n%selse\n%send if;', case head when 'skip_map' then 'pg_sequence_last_value({skip_map_slot}) % 2' else 'leaf' end,
                               replace(block, '{leaf}', '{schema}._' || head || '_0'), replace(block, '{leaf}', '{schema}._' || head || '_1'))
                     || substr(part, position('{end}' in part) + 5);
    end loop;

    body := replace(body, '$fn$', case when strpos(queue, '$fn$') > 0 then format('$fn%s$', md5(queue)) else '$fn$' end);
    for word, what in
        select w.word, case when w.n < 3 then w.what else _hidden(w.what) end
          from (select * from (values
                    (1, 'job', 'coalesce(t.id, t.seq), t.key, t.group_key, t.priority, t.attempt operator(pg_catalog.+) 1, t.created_at, t.headers, t.payload'),
                    -- Else {take_keyed} takes it: the first job with a key, or that holds a barrier, may be committed after the flags were read. A claim does not end it.
                    (1, 'alone', 't.key is null and (t.headers operator(pg_catalog.->>) ''penstock-holds'') is null'),
                    (1, 'lease_columns', 'queue, attempt, lease_until, id, created_at, priority, worker, group_key, key, headers, payload, failures, claimed_at'),
                    (1, 'lease_row', '{id}, t.attempt + 1, until, coalesce(t.id, t.seq), t.created_at, t.priority, coalesce(worker, ''''), t.group_key, t.key, t.headers, t.payload, t.failures, until operator(pg_catalog.-) lease'),
                    -- Kept done jobs. Around a delete of leases: {with l}delete from ... l {returning} ... {from l}.
                    (0, 'with l', case when kept then 'with l as (' else '' end),
                    (0, 'from l', case when kept then ' from l' else '' end),
                    (0, 'returning', case when kept then 'returning l.*), kept as ({done of one} select {done row}, l.id, l.attempt, l.created_at, l.failures, l.report, l.headers ->> ''penstock-kind'' from l) select' else 'returning' end),
                    (1, 'done several', $sql$insert into {history} (claimed_at, worker, group_key, priority, key, id, attempt, created_at, failures, report, jobs, attempts, created, failed, kind, kinds)
                        select l.claimed_at, l.worker, l.group_key, l.priority, l.key,
                               case when count(*) = 1 then min(l.id) end, case when count(*) = 1 then min(l.attempt) end, case when count(*) = 1 then min(l.created_at) end,
                               case when count(*) = 1 then (array_agg(l.failures))[1] end, (array_agg(l.report))[1],
                               case when count(*) > 1 then array_agg(l.id) end, case when count(*) > 1 then array_agg(l.attempt) end, case when count(*) > 1 then array_agg(l.created_at) end,
                               case when count(*) > 1 and count(l.failures) > 0 then array_agg(l.failures) end,
                               case when count(*) = 1 then min(l.headers ->> 'penstock-kind') end, case when count(*) > 1 and count(l.headers) > 0 then array_agg(l.headers ->> 'penstock-kind') end
                          from (select d.*, row_number() over () / 255 as part, case when d.key is not null or d.report is not null then d.lease end as single from d) l
                         group by l.claimed_at, l.worker, l.group_key, l.priority, l.key, l.single, l.part$sql$),
                    (1, 'done of one', 'insert into {history} (claimed_at, worker, group_key, priority, key, id, attempt, created_at, failures, report, kind)'),
                    (1, 'done', 'insert into {history} (claimed_at, worker, group_key, priority, key, jobs, attempts, created, failed, kinds)'),
                    (1, 'done row', 'l.claimed_at, l.worker, l.group_key, l.priority, l.key'),
                    (1, 'done jobs', 'select array_agg(j.id), array_agg(j.attempt), array_agg(j.created_at), case when count(j.failures) > 0 then array_agg(j.failures) end, case when count(j.headers) > 0 then array_agg(j.headers ->> ''penstock-kind'') end'),
                    (3, 'history', _q(format('_%s.done', queue))),
                    (1, 'only lease', 'null::bigint, null::text, null::text, null::smallint, null::int, null::timestamptz, null::jsonb, null::bytea'),
                    (0, 'next_base', '(nextval({lease_n}) % 34359738368 << 28) | (floor(random() * 524288)::bigint << 9) | 1'),
                    (1, 'nobody', '''0''::pg_catalog.bit(256)'),
                    (1, 'leased_job', 'l.id, l.key, l.group_key, l.priority, l.attempt, l.created_at, l.headers, l.payload, l.lease, l.lease_until'),
                    (1, 'now', '(pg_catalog.date_part(''epoch''::pg_catalog.text, pg_catalog.clock_timestamp()) operator(pg_catalog.*) ''40'')::bigint'),
                    (1, 'slots', '{schema}._listed_slots({id}, {lifo}, {ring})'),
                    (1, 'maintain_if_due', due),
                    (1, 'maintain_if_due, upkeep', replace(due, ' pg_catalog.abs(', ' upkeep and pg_catalog.abs(')),
                    (1, 'maintain_if_due, leasing', replace(due, '(queue) values ({id})', '(queue, until) values ({id}, until)')),
                    (1, 'listed lease', '{schema}._listed({lease_slot})'),
                    (1, 'listed scheduled', '{schema}._listed({scheduled_slot})'),
                    (3, 'dequeue', _q('dequeue_' || queue)),
                    (3, 'raise', _q(format('_%s.flags', queue))),
                    -- The bits of the register of flags. Bit 16 + p: there are jobs of priority p.
                    (1, 'plain', '65536'), -- of priority 0 only, and nothing else
                    (1, 'keyed', '4294967296'), -- there may be jobs with keys
                    (1, 'watched', '25769803776'), -- an operator may have paused or limited the queue or groups of it: see _admit
                    (1, 'dated', '103079215104'), -- one of these:
                    (1, 'late', '34359738368'), -- there may be jobs with deadlines
                    (1, 'held', '68719476736'), -- there may be jobs that hold barriers
                    (3, 'name', quote_literal(queue)),
                    (3, 'queue', _q(queue)),
                    (3, 'schema', quote_ident(current_schema())),
                    (2, 'id', q.id::text),
                    (2, 'lifo', q.lifo::text),
                    (2, 'dir', case when q.lifo then 'desc' else 'asc' end),
                    (2, 'beyond', case when q.lifo then '<' else '>' end),
                    (2, 'start', case when q.lifo then '9223372036854775807' else '-1' end),
                    (2, 'older_first', case when q.lifo then 'in reverse cardinality(slots) .. 1' else 'in 1 .. cardinality(slots)' end)) v
                union all
                select 3, f, _q(format('_%s.%s', queue, f)) from unnest(array_remove(_generated(), 'flags')) f -- {flags} is a register, see {raise}
                union all
                select 3, r, format('%L::pg_catalog.regclass', _q(format('_%s.%s', queue, r)))
                  from unnest('{ring,flags,seq,fast_path,next,top,seen,maintained}'::text[]) r
                union all
                select 3, r, format('%L::pg_catalog.regclass', _q('_' || r)) from unnest('{skip_map_slot,skip_map_n,lease_slot,lease_n,scheduled_slot}'::text[]) r) w(n, word, what)
         order by w.n -- those that are in others come later
    loop
        body := replace(body, '{' || word || '}', what);
    end loop;

    parts := string_to_array(body, '{segments ');
    body := parts[1];
    foreach part in array parts[2:] loop
        head := split_part(part, '}', 1);
        block := substr(split_part(part, '{end}', 1), length(head) + 3);
        body := body || _choose(split_part(head, ' ', 1),
                                array(select s + ('0' || split_part(head, ' ', 2))::int from unnest(slots) with ordinality u(s, n) order by n),
                                array(select replace(block, '{segment}', s) from unnest(segments) with ordinality u(s, n) order by n))
                     || substr(part, position('{end}' in part) + 5);
    end loop;
    return replace(replace(body, e'\x010', '{'), e'\x011', e'\x01'); -- as _hidden has hidden it
end $$;

-- _hidden hides braces of a name from _fill.
create or replace function _hidden(name text) returns text
language sql immutable set search_path from current as $$ select replace(replace(name, e'\x01', e'\x011'), '{', e'\x010') $$;
