-- Publishing: the limits of a message, and the functions that write one.

-- _refuse_headers raises an error if the headers of a message or a job are invalid. Escapes only make JSON longer than
-- what it stands for, so short text needs no adding up.
create or replace function _refuse_headers(headers jsonb) returns void
language plpgsql immutable set search_path from current as $$ declare bytes bigint;
begin
    if jsonb_typeof(headers) <> 'object' then
        raise exception 'the headers are a JSON %, expected an object', jsonb_typeof(headers)
        using errcode = '23514', hint = 'for example {"trace": "4bf92f35"}';
    elsif octet_length(headers::text) > 65536 then
        bytes := (select sum(octet_length(h.key) + coalesce(octet_length(h.value), 0)) from jsonb_each_text(headers) h);
        if bytes > 65536 then
            raise exception 'the headers have % bytes, the limit is 65536', bytes
            using errcode = '23514', hint = 'move large values into the payload';
        end if;
    end if;
end $$;

-- _readable returns a statement that fails with 22P05 if a text cannot be converted from the database's encoding to
-- UTF8. All text is read as UTF8, so the error comes here and not in the reader. In a UTF8 or SQL_ASCII database it is
-- empty.
create or replace function _readable(columns text) returns text
language sql stable set search_path from current as $$
    select case when getdatabaseencoding() in ('UTF8', 'SQL_ASCII') then ''
                else format('perform pg_catalog.convert_to(pg_catalog.concat(%s), ''UTF8'');', columns) end $$;

do $do$ begin execute replace(replace($ddl$
-- _validate_message is the trigger that validates the rows of an outbox, so that limits hold for a plain INSERT. A
-- check constraint would be parsed anew in every statement. It runs with the rights and on the search_path of the role
-- that inserts, because another path would cost as much again as the rest. So all in it is qualified.
create or replace function _validate_message() returns trigger
language plpgsql as $fn$ begin
    {readable}
    if new.headers is null and new.id is null
       and (new.key is null or pg_catalog.octet_length(new.key) operator(pg_catalog.<=) 1024)
       and pg_catalog.octet_length(new.topic) operator(pg_catalog.<=) 1024
       and pg_catalog.octet_length(new.payload) operator(pg_catalog.<=) 67108864 then
        return new;
    end if;
    if new.payload is null then
        raise exception 'the payload is null' using errcode = '22023', hint = 'use an empty payload if the message has none';
    elsif pg_catalog.octet_length(new.payload) operator(pg_catalog.>) 67108864 then
        raise exception 'the payload has % bytes, the limit is 67108864', pg_catalog.octet_length(new.payload)
        using errcode = '23514', hint = 'store it elsewhere and publish a reference';
    elsif new.topic is null then
        raise exception 'the topic is null' using errcode = '22023', hint = $h$leave the column out, or use '' if the message has none$h$;
    elsif pg_catalog.octet_length(new.topic) operator(pg_catalog.>) 1024 then
        raise exception 'the topic has % bytes, the limit is 1024', pg_catalog.octet_length(new.topic) using errcode = '23514', hint = 'use a shorter one';
    elsif pg_catalog.octet_length(new.key) operator(pg_catalog.>) 1024 then
        raise exception 'the key has % bytes, the limit is 1024', pg_catalog.octet_length(new.key) using errcode = '23514', hint = 'use a hash of it';
    elsif pg_catalog.octet_length(new.id) operator(pg_catalog.>) 256 then
        raise exception 'the id has % bytes, the limit is 256', pg_catalog.octet_length(new.id) using errcode = '23514', hint = 'use a hash of it';
    elsif pg_catalog.jsonb_typeof(new.headers) operator(pg_catalog.<>) 'object'
          or pg_catalog.octet_length(new.headers::pg_catalog.text) operator(pg_catalog.>) 65536 then
        perform {schema}._refuse_headers(new.headers);
    end if;
    return new;
end $fn$ $ddl$, '{readable}', _readable('new.key, new.topic, new.id, new.headers')), '{schema}', quote_ident(current_schema())); end $do$;

-- _validate_by makes the trigger that validates the rows of a table and of its segments. Triggers fire in the order of
-- their names, so this one comes after those that users add, and always: also for what a subscription of logical
-- replication writes.
create or replace function _validate_by(name text, call text) returns void
language plpgsql set search_path from current as $$ begin
    execute format('create trigger zz_validate before insert or update on %s for each row execute function %s', _q(name), call);
    execute format('alter table %s enable always trigger zz_validate', _q(name));
end $$;

create or replace function publish_bytes(outbox text, payload bytea, key text default null, topic text default '',
                        headers jsonb default null, id text default null) returns void
language plpgsql set search_path from current as $$ begin
    if to_regclass(quote_ident(current_schema()) || '.' || quote_ident('_' || outbox || '.slot')) is null then -- a queue has none
        raise exception 'there is no outbox %', coalesce(quote_literal(outbox), 'null')
        using errcode = '42P01', hint = 'create it with: penstock outbox create ' || coalesce(quote_literal(outbox), 'NAME');
    end if;
    execute format('insert into %I.%I (id, key, topic, headers, payload) values ($1, $2, $3, $4, $5)', current_schema(), outbox)
    using id, key, coalesce(topic, ''), headers, payload;
end $$;

comment on function publish_bytes is 'Writes one message within the caller''s transaction; a plain INSERT into the outbox does the same and is faster. Errors: 42P01 for an unknown outbox, 23514 for a field over its limit, 22023 for a payload that is null, 22021 for text with a NUL or invalid UTF-8.';

-- Functions with a payload take text and JSON, and bytes by another name. Drivers that send parameters without types,
-- and literals, mean text. An overload for bytea would either not be chosen or read the text as bytea's, in which a
-- backslash begins an escape.
create or replace function publish(outbox text, payload text, key text default null, topic text default '',
                        headers jsonb default null, id text default null) returns void
language sql set search_path from current as $$ select publish_bytes(outbox, convert_to(payload, 'UTF8'), key, topic, headers, id) $$;

comment on function publish(text, text, text, text, jsonb, text) is 'Writes one message of text, as UTF-8, within the caller''s transaction. Otherwise it is like publish_bytes.';

create or replace function publish(outbox text, payload jsonb, key text default null, topic text default '',
                        headers jsonb default null, id text default null) returns void
language sql set search_path from current as $$ select publish_bytes(outbox, convert_to(payload::text, 'UTF8'), key, topic, headers, id) $$;

comment on function publish(text, jsonb, text, text, jsonb, text) is 'Writes one message of JSON, as UTF-8, within the caller''s transaction. Otherwise it is like publish_bytes.';
