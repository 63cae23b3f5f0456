-- What the texts of a queue's functions are put together with.

-- _qualified says in the text of a function where its operators and functions are, so that
-- it may run with its owner's rights on its caller's search_path. Names are put in
-- afterwards. Qualified operators all bind alike, from left to right: brackets say the rest.
create or replace function _qualified(body text) returns text
language sql immutable set search_path from current as $$
    select regexp_replace(regexp_replace(body,
        $re$ (<=|>=|<|>|=|\+|-|\*|%) $re$, $re$ operator(pg_catalog.\1) $re$, 'g'),
        $re$\m(pg_sequence_last_value|nextval|setval|date_part|clock_timestamp|current_setting)\($re$, $re$pg_catalog.\1($re$, 'g')
$$;

-- _tick_if_due does what time demands, now and then; also once the clock was set back.
create or replace function _tick_if_due() returns text
language sql immutable set search_path from current as $text$ select _qualified($$
    if pg_catalog.abs(date_part('epoch', clock_timestamp()) * 1000 - pg_sequence_last_value({tick_register})) >= 250
       and current_setting('transaction_isolation') = 'read committed' then
        insert into {schema}._tick (queue) values ({id});
    end if;$$) $text$;

-- _job_columns makes a job of a row t of a queue.
create or replace function _job_columns() returns text
language sql immutable set search_path from current as $$
    select 'coalesce(t.id, t.seq), t.key, t.grp, t.priority, t.attempt operator(pg_catalog.+) 1, t.created_at, t.headers, t.payload'
$$;

-- _choose is PL/pgSQL that runs one of several texts: the one whose key is the last that
-- is not above what. Keys are literals in order. Of a hundred it compares with seven,
-- where CASE would with all.
create or replace function _choose(what text, keys text[], texts text[]) returns text
language sql immutable set search_path from current as $$
    select case when coalesce(cardinality(keys), 0) <= 1 then coalesce(texts[1], '')
                else format(e'if %s operator(pg_catalog.<) %s then\n%s\nelse\n%s\nend if;', what, keys[half + 1],
                            _choose(what, keys[1:half], texts[1:half]), _choose(what, keys[half + 1:], texts[half + 1:])) end
      from (select cardinality(keys) / 2 as half) h
$$;

create or replace function _slots(queue text) returns table (slot int)
language sql stable set search_path from current as $$
    select substring(c.relname from $re$\.([0-9]+)\Z$re$)::int
      from pg_inherits i join pg_class c on c.oid = i.inhrelid
     where i.inhparent = _q(queue)::regclass
$$;

-- _for_segments is PL/pgSQL that runs a statement for the segment whose number, after
-- base, is what.
create or replace function _for_segments(queue text, what text, statement text, base int default 0) returns text
language sql stable set search_path from current as $$
    select _choose(what, array_agg((base + s.slot)::text order by s.slot),
                   array_agg(replace(statement, '{segment}', _q(format('_%s.%s', queue, s.slot))) order by s.slot))
      from _slots(queue) s
$$;

-- _with_segments expands what is between {segments here} and {end}: to a branch for each
-- segment, of which the variable here says the number.
create or replace function _with_segments(body text, queue text) returns text
language plpgsql stable set search_path from current as $$
declare
    block text;
begin
    loop
        block := substring(body from $re$\{segments here\}\n(.*?)\{end\}$re$);
        exit when block is null;
        body := replace(body, '{segments here}' || e'\n' || block || '{end}', _for_segments(queue, 'here', block));
    end loop;
    return body;
end $$;
