-- Publishing: what a message may be, and the functions that write one.

-- +goose Up

-- _admit_message is the check of an outbox, so that limits hold for a plain INSERT. It is
-- one function because PostgreSQL parses each check of a table anew in every statement,
-- and has no search_path of its own, which would cost as much again: so all in it is
-- qualified.
-- +goose StatementBegin
create function _admit_message(id text, key text, topic text, headers jsonb, payload bytea) returns boolean
language plpgsql immutable as $$
begin
    if pg_catalog.octet_length(payload) operator(pg_catalog.<=) 67108864
       and pg_catalog.octet_length(topic) operator(pg_catalog.<=) 1024
       and (key is null or pg_catalog.octet_length(key) operator(pg_catalog.<=) 1024)
       and (id is null or pg_catalog.octet_length(id) operator(pg_catalog.<=) 256)
       and (headers is null or pg_catalog.jsonb_typeof(headers) operator(pg_catalog.=) 'object') then
        return true;
    end if;
    if pg_catalog.octet_length(payload) operator(pg_catalog.>) 67108864 then
        raise exception 'the payload has % bytes, the limit is 67108864', pg_catalog.octet_length(payload)
        using errcode = '23514', hint = 'store it elsewhere and publish a reference';
    elsif pg_catalog.octet_length(topic) operator(pg_catalog.>) 1024 then
        raise exception 'the topic has % bytes, the limit is 1024', pg_catalog.octet_length(topic) using errcode = '23514', hint = 'use a shorter one';
    elsif pg_catalog.octet_length(key) operator(pg_catalog.>) 1024 then
        raise exception 'the key has % bytes, the limit is 1024', pg_catalog.octet_length(key) using errcode = '23514', hint = 'use a hash of it';
    elsif pg_catalog.octet_length(id) operator(pg_catalog.>) 256 then
        raise exception 'the id has % bytes, the limit is 256', pg_catalog.octet_length(id) using errcode = '23514', hint = 'use a hash of it';
    end if;
    raise exception 'the headers are a JSON %, expected an object', pg_catalog.jsonb_typeof(headers)
    using errcode = '23514', hint = 'for example {"trace": "4bf92f35"}';
end $$;
-- +goose StatementEnd

-- publish writes one message within the caller's transaction; a plain INSERT
-- into the outbox does the same and is faster. Errors: 42P01 for an unknown
-- outbox, 23514 for a field over its limit, 22021 for text with a NUL or invalid
-- UTF-8.
-- +goose StatementBegin
create function publish(outbox text, payload bytea, key text default null, topic text default '',
                        headers jsonb default null, id text default null) returns void
language plpgsql set search_path from current as $$
declare
    target text := format('%I.%I', current_schema(), outbox);
begin
    if to_regclass(target) is null then
        raise exception 'there is no outbox %', quote_literal(outbox)
        using errcode = '42P01', hint = 'create it with: penstock outbox create ' || quote_literal(outbox);
    end if;
    execute format('insert into %s (id, key, topic, headers, payload) values ($1, $2, $3, $4, $5)', target)
    using id, key, coalesce(topic, ''), headers, payload;
end $$;
-- +goose StatementEnd

-- The same for text and JSON, as UTF-8. Without these a string would be read as the
-- text form of bytea, in which a backslash begins an escape.
-- +goose StatementBegin
create function publish(outbox text, payload text, key text default null, topic text default '',
                        headers jsonb default null, id text default null) returns void
language sql set search_path from current as $$
    select publish(outbox, convert_to(payload, 'UTF8'), key, topic, headers, id)
$$;
-- +goose StatementEnd

-- +goose StatementBegin
create function publish(outbox text, payload jsonb, key text default null, topic text default '',
                        headers jsonb default null, id text default null) returns void
language sql set search_path from current as $$
    select publish(outbox, convert_to(payload::text, 'UTF8'), key, topic, headers, id)
$$;
-- +goose StatementEnd

-- +goose Down
select 'Penstock does not migrate down: drop the schema instead';
