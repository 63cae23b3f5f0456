-- How the functions of inboxes are made: those of each, and those that take a consumer's name.

-- _inbox_name returns the quoted name of a part of an inbox.
create or replace function _inbox_name(id int, part text) returns text
language sql stable set search_path from current
as $$ select _q(format('__inbox.%s.%s', id, part)) $$;

-- _define_inbox makes the functions of an inbox, or makes them anew. In their texts {first} and so
-- on are their own names, and {ring} and so on the registers. {each: ...} stands for a case of the
-- four slots, in which {seen}, {held}, {heads} and {gaps} are the slot's tables.
create or replace function _define_inbox(id int) returns void
language plpgsql set search_path from current as $$ declare
    text  text := (select string_agg(t.body, '' order by t.name) from _template t where t.kind = 'inbox');
    own   constant text[] := '{enter,enter_holding,is_locked,see,received,reported,held_after,first,first_of,in_order,release,due,advance,maintain,is_empty,empty,
                                     status,list_held,list_gaps,let_go,discard}';
    word  text;
    part  text;
    body  text;
    here  text;
    name  text;
    cases text;
begin
    loop
        part := substring(text from $re$\{each: (?:[^{}]|\{[a-z_]*\})*\}$re$);
        exit when part is null;
        body := substring(part from 8 for length(part) - 8);
        cases := 'case t % 4';
        for slot in 0 .. 3 loop
            here := body;
            foreach word in array array['seen', 'held', 'heads', 'gaps'] loop
                name := _inbox_name(id, word || '.' || slot);
                here := replace(replace(here, '{' || word || '}', name), '{' || word || '_name}', quote_literal(name));
            end loop;
            cases := cases || format(E'\n        when %s then ', slot) || here;
        end loop;
        text := replace(text, part, cases || E'\n        end case;');
    end loop;
    foreach word in array own loop text := replace(text, '{' || word || '}', _inbox_name(id, word)); end loop;
    -- next is at most ten seconds ahead: further, and the clock was set back.
    text := replace(text, '{is_due}', 'abs(extract(epoch from clock_timestamp()) * 1000 - pg_sequence_last_value({next}) + 5000) > 5000');
    foreach word in array array['ring', 'since', 'next', 'holds', 'low', 'candidate', 'epoch'] loop
        text := replace(text, '{' || word || '}', quote_literal(_inbox_name(id, word)) || '::regclass');
    end loop;
    text := replace(text, '{schema}', quote_ident(current_schema()));
    text := replace(replace(text, '{class}', '1885695598'), '{holding_class}', '1885695599');
    text := replace(text, '{key_seed}', (id + (1::bigint << 40))::text); -- queues use the numbers below
    text := replace(text, '{id}', id::text);
    execute text;
    perform _close(array(select p.oid from _own_functions('_inbox.' || id) p));
end $$;

-- _dispatch_inboxes makes the functions that take a consumer's name anew: a branch for each inbox, because a dynamic
-- call costs several times a static one. Its caller holds the lock (_inbox, 0) until its transaction ends, so that no
-- other session makes them from a list without this inbox.
create or replace function _dispatch_inboxes() returns void
language plpgsql set search_path from current as $$ declare
    public_functions constant text[] := array[
        'inbox(consumer text, message_id text) returns boolean', 'return {first}(message_id)',
        'Notes that a consumer receives a message, and returns whether it is the first time. The note commits or rolls back with the consumer''s transaction. Errors: 42P01, 22023, 23514.',
        'inbox_many(consumer text, message_ids text[]) returns setof text', 'return query select * from {first_of}(message_ids)',
        'Notes several messages as inbox does, and returns the ids of those that are received for the first time, in their order.',
        'inbox_in_order_bytes(consumer text, key text, message_id text, previous_id text, headers jsonb, payload bytea, wait interval default ''30 s'') returns setof inboxed',
        'return query select * from {in_order}(key, message_id, previous_id, headers, payload, wait)',
        'Receives a message of a key and returns the messages that may be processed now, in order: this one, and those that were held for it. It returns none if the message came before, or if it came early and is held back for up to wait. Errors: 42P01, 22023, 23514, 25001.',
        'inbox_due(consumer text, n int default 10, passing_over text[] default ''{}'') returns setof inboxed', 'return query select * from {due}(n, passing_over)',
        'Hands over messages that have waited long enough: of up to n keys, the first one and those behind it. The first one has gap, and the id that is missing.',
        'maintain_inbox(consumer text) returns void', 'perform {maintain}(true)',
        'Runs the maintenance of an inbox, which calls also run now and then. The inbox forgets ids that are out of its window, and gives their space back.',
        'inbox_held(consumer text, key text default null, previous_id text default null, message_id text default null, n int default 100) returns setof held_message',
        'return query select * from {list_held}(key, previous_id, message_id, n)',
        'Lists up to n messages that are held back, those that are due first. The payload is there only if one message is asked for by its id.',
        'inbox_gaps(consumer text, n int default 100) returns setof inbox_gap', 'return query select * from {list_gaps}(n)',
        'Lists up to n messages that did not come in time or were discarded, the latest first.',
        'inbox_release(consumer text, key text default null, previous_id text default null, message_id text default null) returns bigint',
        'return {let_go}(key, previous_id, message_id)',
        'Makes messages that are held back due now, of a key, of a predecessor, of an id, or all, and returns how many. The next inbox_due hands them over.',
        'inbox_discard(consumer text, message_ids text[]) returns setof text', 'return query select * from {discard}(message_ids)',
        'Discards messages that are held back, as if they had never come, and returns their ids. Messages that wait for them are due now.'];
    branches text;
    word     text;
    names    text[];
begin
    for i in 1 .. cardinality(public_functions) by 3 loop
        word := substring(public_functions[i + 1] from $re$\{(\w+)\}$re$);
        select coalesce(string_agg(format(E'\n    when %L then %s;', x.consumer,
                                          replace(public_functions[i + 1], '{' || word || '}', _inbox_name(x.id, word))), '' order by x.id), '')
          into branches from _inbox x;
        execute format('create or replace function %s language plpgsql volatile as %L', public_functions[i], format($body$
begin
    case consumer
    when null then null;%s
    else
        raise exception 'there is no inbox of %%', coalesce(quote_literal(consumer), 'null')
        using errcode = '42P01', hint = %L || coalesce(quote_literal(consumer), 'NAME') || ')';
    end case;
end $body$, branches, format('its owner creates it with: select %I.create_inbox(', current_schema())));
        execute format('comment on function %I is %L', split_part(public_functions[i], '(', 1), public_functions[i + 2]);
        names := names || split_part(public_functions[i], '(', 1);
    end loop;
    perform _keep_hashes(array(select p.oid from pg_proc p where p.pronamespace = quote_ident(current_schema())::regnamespace and p.proname = any (names)));
end $$;

-- inbox_in_order is inbox_in_order_bytes for text and JSON, see publish.
do $do$
declare kind text;
begin
    foreach kind in array array['text', 'jsonb'] loop
        execute format($ddl$
create or replace function inbox_in_order(consumer text, key text, message_id text, previous_id text, headers jsonb, payload %2$s, wait interval default '30 s') returns setof inboxed
language plpgsql volatile as $fn$ begin
    return query select * from %1$I.inbox_in_order_bytes(consumer, key, message_id, previous_id, headers, pg_catalog.convert_to(payload::pg_catalog.text, 'UTF8'), wait);
end $fn$;

comment on function inbox_in_order(text, text, text, text, jsonb, %2$s, interval) is 'Receives a message whose payload is %3$s, as UTF-8. Otherwise it is like inbox_in_order_bytes.'
$ddl$, current_schema(), kind, case kind when 'jsonb' then 'JSON' else kind end);
    end loop;
end $do$;
