-- Jobs: leases, retries, delays, keys. A queue needs this beyond its ring (queue.sql to
-- queue_ring.sql) and a plain INSERT or dequeue. A job is in exactly one place at a time, and moves by a
-- DELETE and an INSERT in one transaction:
--
--   ready ring -> _lease              claim
--   _lease     -> nothing             ack
--   _lease     -> _scheduled -> ready retry, once it is due
--   _lease     -> ready               release, or its lease ended
--   ready      -> _scheduled -> ready it waits for another job of its key
--   new        -> _scheduled -> ready it waits for barriers; a message goes to its outbox, or to _dead_job
--   _lease     -> _dead_job           dead_letter, or the last attempt failed

-- _failed adds a failure to a job's history and keeps the latest ten.
create or replace function _failed(failures jsonb, attempt int, error text) returns jsonb
language sql volatile set search_path from current as $$
    select jsonb_agg(e order by i)
      from (select e, i from jsonb_array_elements(case jsonb_typeof(failures) when 'array' then failures else '[]' end || jsonb_build_object(
                'attempt', attempt, 'error', coalesce(error, ''),
                'at', to_char(clock_timestamp() at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'))) with ordinality x(e, i)
             order by i desc limit 10) latest $$;

-- _refuse_job raises an error that names the invalid field of a job, for its producer.
create or replace function _refuse_job(payload bytea, key text, group_key text, priority int, headers jsonb, dedup_key text) returns void
language plpgsql volatile set search_path from current as $$ begin
    if payload is null then
        raise exception 'the payload is null' using errcode = '22023', hint = 'use an empty payload if the job needs none';
    elsif octet_length(payload) > 67108864 then
        raise exception 'the payload has % bytes, the limit is 67108864', octet_length(payload)
        using errcode = '23514', hint = 'store it elsewhere and enqueue a reference';
    elsif octet_length(key) > 1024 then
        raise exception 'the key has % bytes, the limit is 1024', octet_length(key) using errcode = '23514', hint = 'use a hash of it';
    elsif octet_length(group_key) > 256 then
        raise exception 'the group has % bytes, the limit is 256', octet_length(group_key) using errcode = '23514', hint = 'use a shorter name, or a hash of it';
    elsif priority not between -16 and 15 then
        raise exception 'the priority is %, expected -16 to 15', priority using errcode = '23514', hint = 'lower numbers run first; 0 is the default';
    elsif octet_length(dedup_key) > 256 then
        raise exception 'the dedup_key has % bytes, the limit is 256', octet_length(dedup_key) using errcode = '23514', hint = 'use a hash of it';
    elsif octet_length(headers ->> 'penstock-kind') > 100 or headers ->> 'penstock-kind' ~ '[\u0001-\u001f\u007f]' then
        raise exception 'the kind % is not possible', quote_literal(left(headers ->> 'penstock-kind', 100))
        using errcode = '23514', hint = 'use 1 to 100 bytes without control characters';
    elsif jsonb_typeof(headers) <> 'object' or octet_length(headers::text) > 65536 then
        perform _refuse_headers(headers);
    end if;
    if headers ?| '{penstock-unique-key,penstock-on-conflict,penstock-debounce-max,penstock-max-attempts,penstock-timeout,penstock-deadline,penstock-holds,penstock-waits-for,penstock-on-dead}' then
        perform _refuse_options(headers, key);
    end if;
end $$;

-- _refuse_options is the part of _refuse_job for the headers that carry options of a job. Whether there is a twin of a unique key is not
-- looked at here: a job also comes back to its queue by an INSERT.
create or replace function _refuse_options(headers jsonb, key text) returns void
language plpgsql stable set search_path from current as $$ declare
    name text;
    seconds constant text := '^(?=.*[1-9])[0-9]{1,9}([.][0-9]{1,6})?$';
begin
    if headers ->> 'penstock-unique-key' <> key is not false and headers ->> 'penstock-unique-key' is not null then
        raise exception 'the unique_key is %, and the key is %', quote_literal(headers ->> 'penstock-unique-key'), coalesce(quote_literal(key), 'null')
        using errcode = '23514', hint = 'a unique job has its unique_key as key: leave the key out, or in an INSERT give both';
    elsif headers ->> 'penstock-unique-key' = '' then
        raise exception 'the unique_key is empty' using errcode = '23514', hint = 'leave it out for a job that is not unique';
    elsif headers ->> 'penstock-on-conflict' not in ('ignore', 'replace', 'debounce') then
        raise exception 'on_conflict is %', quote_literal(left(headers ->> 'penstock-on-conflict', 100)) using errcode = '23514', hint = 'use ignore, replace or debounce';
    elsif headers ? 'penstock-on-conflict' and not headers ? 'penstock-unique-key' then
        raise exception 'on_conflict is given without a unique_key' using errcode = '23514', hint = 'give both';
    elsif headers ? 'penstock-debounce-max' and headers ->> 'penstock-on-conflict' is distinct from 'debounce' then
        raise exception 'debounce_max is given and on_conflict is not debounce' using errcode = '23514', hint = 'set on_conflict to debounce, or leave it out';
    elsif headers ->> 'penstock-max-attempts' !~ '^[1-9][0-9]{0,8}$' then
        raise exception 'max_attempts is %', quote_literal(left(headers ->> 'penstock-max-attempts', 100)) using errcode = '23514', hint = 'use a number from 1 to 999999999';
    end if;
    if headers ->> 'penstock-holds' !~ '^0?[1-9][0-9]{0,17}$' or headers ? 'penstock-waits-for' and (headers ->> 'penstock-waits-for' ~ '^[1-9][0-9]{0,17}(,[1-9][0-9]{0,17}){0,99}$') is not true then
        raise exception 'the barriers are % and %, in holds and waits_for', quote_nullable(left(headers ->> 'penstock-holds', 100)), quote_nullable(left(headers ->> 'penstock-waits-for', 100))
        using errcode = '23514', hint = 'give numbers that penstock.barrier returned: one that the job holds, 1 to 100 that it waits for';
    elsif string_to_array(headers ->> 'penstock-waits-for', ',') @> array[ltrim(headers ->> 'penstock-holds', '0')] then
        raise exception 'the job holds the barrier % and waits for it', headers ->> 'penstock-holds' using errcode = '23514', hint = 'make another barrier for one of the two';
    elsif headers ->> 'penstock-on-dead' not in ('wait', 'run', 'cancel') then
        raise exception 'on_dead is %', quote_literal(left(headers ->> 'penstock-on-dead', 100)) using errcode = '23514', hint = 'use wait, run or cancel';
    elsif headers ? 'penstock-on-dead' and not headers ? 'penstock-waits-for' then
        raise exception 'on_dead is given without waits_for' using errcode = '23514', hint = 'give both';
    end if;
    foreach name in array '{penstock-debounce-max,penstock-timeout}'::text[] loop
        if headers ->> name !~ seconds then
            raise exception '% is %', replace(substr(name, 10), '-', '_'), quote_literal(left(headers ->> name, 100)) using errcode = '23514', hint = 'use a positive interval, in the header seconds, for example 0.5';
        end if;
    end loop;
    if headers ? 'penstock-deadline' then
        begin
            if _deadline(headers) is not null then return; end if;
        exception when datetime_field_overflow or invalid_datetime_format then
            null;
        end;
        raise exception 'the deadline is %', coalesce(quote_literal(left(headers ->> 'penstock-deadline', 100)), 'null')
        using errcode = '23514', hint = 'use a time, in the header as RFC 3339 in UTC, for example 2026-11-27T17:00:00Z';
    end if;
end $$;

-- _deadline returns when a job ends as expired, null if it never does.
create or replace function _deadline(headers jsonb) returns timestamptz
language sql stable set search_path from current as $$
    select case when headers ->> 'penstock-deadline' ~ '^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]{1,6})?Z$' then (headers ->> 'penstock-deadline')::timestamptz end
$$;

-- _max_attempts returns after how many attempts a job is a dead letter: its own limit, or the queue's.
create or replace function _max_attempts(headers jsonb, of_queue int) returns int
language sql immutable set search_path from current
as $$ select case when headers ->> 'penstock-max-attempts' ~ '^[1-9][0-9]{0,8}$' then (headers ->> 'penstock-max-attempts')::int else of_queue end $$;

-- _with_options returns the headers of a job with those that carry its options.
create or replace function _with_options(headers jsonb, kind text, unique_key text, on_conflict text, debounce_max interval, max_attempts int, timeout interval, deadline timestamptz,
                                         holds bigint default null, waits_for bigint[] default null, on_dead text default null) returns jsonb
language plpgsql stable set search_path from current as $$ declare o record;
begin
    for o in select * from (values
                ('kind', nullif(kind, '')), ('unique_key', unique_key), ('on_conflict', on_conflict), ('debounce_max', trim_scale(extract(epoch from debounce_max))::text), ('max_attempts', max_attempts::text),
                ('timeout', trim_scale(extract(epoch from timeout))::text),
                ('deadline', case when deadline = '-infinity' then '-infinity' else to_char(deadline at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') end),
                ('holds', holds::text), ('waits_for', nullif(array_to_string(waits_for, ','), '')), ('on_dead', on_dead)) v(name, value) where v.value is not null
    loop
        o.name := 'penstock-' || replace(o.name, '_', '-');
        if nullif(headers ->> o.name, '') <> o.value then
            raise exception 'the % is %, and the header % says %', replace(substr(o.name, 10), '-', '_'), quote_literal(o.value), o.name, quote_literal(headers ->> o.name)
            using errcode = '23514', hint = 'give one of them';
        end if;
        headers := coalesce(headers, '{}') || jsonb_build_object(o.name, o.value);
    end loop;
    return headers;
end $$;

-- _lost raises the error for a lease that is not there any more. It returns a time so that it fits into an expression.
create or replace function _lost(lease bigint) returns timestamptz
language plpgsql volatile set search_path from current as $$ begin
    raise exception 'lease % is lost', coalesce(lease::text, 'null')
    using errcode = 'PS001', hint = 'it has ended, or the job was settled or cancelled: extend leases while a job runs, or claim with a longer one';
end $$;

-- _hold_keys locks dedup_keys and unique_keys until the transaction ends, so that another enqueue with one of them looks for the job
-- only after that. A key has its own lock and, shared, one of the 1,024 of its queue. The server's locks are few: a
-- transaction with more than a hundred keys takes from the next call on only the latter, and not shared. Without
-- waiting, it may return false, and hold some.
create or replace function _hold_keys(queue int, keys text[], waiting boolean default true) returns boolean
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$ declare
    many int := coalesce(nullif(current_setting('penstock.dedup_keys', true), '')::int, 0) + cardinality(keys);
    k    record;
begin
    if current_setting('transaction_isolation') not in ('read committed', 'read uncommitted') then
        raise exception 'a dedup_key or unique_key needs the isolation level read committed, this transaction is %', current_setting('transaction_isolation')
        using errcode = '25001', hint = 'it does not see what others have enqueued since it began; begin it with: begin isolation level read committed';
    end if;
    if waiting then perform set_config('penstock.dedup_keys', many::text, true); end if;
    for k in select h.bucket, array_agg(distinct h.hash order by h.hash) as hashes -- in one order, so that two calls do not wait for each other
               from (select hash, (queue::bigint * 1024 + (hash & 1023) & 2147483647)::int as bucket
                       from (select hashtextextended(x, -queue) as hash from unnest(keys) x where x is not null offset 0) x) h
              group by h.bucket order by h.bucket loop
        if many > 100 then
            if waiting then
                perform pg_advisory_xact_lock(1885695588, k.bucket); -- "pend"
            elsif not pg_try_advisory_xact_lock(1885695588, k.bucket) then
                return false;
            end if;
        elsif waiting then
            perform pg_advisory_xact_lock_shared(1885695588, k.bucket);
            perform pg_advisory_xact_lock(h) from unnest(k.hashes) h;
        elsif not pg_try_advisory_xact_lock_shared(1885695588, k.bucket)
              or (select not bool_and(pg_try_advisory_xact_lock(h)) from unnest(k.hashes) h) then
            return false;
        end if;
    end loop;
    return true;
end $$;
