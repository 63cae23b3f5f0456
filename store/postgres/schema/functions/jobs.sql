-- Jobs: leases, retries, delays, keys. This is what a queue needs beyond its ring (queue.sql to
-- queue_ring.sql) and a plain INSERT or dequeue. A job is in exactly one place at a time, and moves by a
-- DELETE and an INSERT in one transaction:
--
--   ready ring -> _lease              claim
--   _lease     -> nothing             ack
--   _lease     -> _scheduled -> ready retry, once it is due
--   _lease     -> ready               release, or its lease ended
--   ready      -> _scheduled -> ready it waits for another job of its key
--   _lease     -> _dead_job           dead_letter, or the last attempt failed

-- _failed adds a failure to a job's history and keeps the latest ten.
create or replace function _failed(failures jsonb, attempt int, error text) returns jsonb
language sql volatile set search_path from current as $$
    select jsonb_agg(e order by i)
      from (select e, i from jsonb_array_elements(case jsonb_typeof(failures) when 'array' then failures else '[]' end || jsonb_build_object(
                'attempt', attempt, 'error', coalesce(error, ''),
                'at', to_char(clock_timestamp() at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'))) with ordinality x(e, i)
             order by i desc limit 10) latest
$$;

-- _refuse_job raises an error that tells a producer which field of a job is invalid.
create or replace function _refuse_job(payload bytea, key text, group_key text, priority int, headers jsonb, dedup_key text) returns void
language plpgsql volatile set search_path from current as $$
begin
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
end $$;

-- _with_kind returns the headers of a job of a kind, which they carry.
create or replace function _with_kind(headers jsonb, kind text) returns jsonb
language plpgsql immutable set search_path from current as $$
begin
    if nullif(headers ->> 'penstock-kind', '') <> nullif(kind, '') then
        raise exception 'the kind is %, and the header penstock-kind says %', quote_literal(kind), quote_literal(headers ->> 'penstock-kind')
        using errcode = '23514', hint = 'give one of them';
    end if;
    return case when kind <> '' then coalesce(headers, '{}') || jsonb_build_object('penstock-kind', kind) else headers end;
end $$;

-- _lost raises the error for a lease that is not there any more. It returns a time so that it fits into an expression.
create or replace function _lost(lease bigint) returns timestamptz
language plpgsql volatile set search_path from current as $$
begin
    raise exception 'lease % is lost', coalesce(lease::text, 'null')
    using errcode = 'PS001', hint = 'it has ended, or the job was settled or cancelled: extend leases while a job runs, or claim with a longer one';
end $$;

-- _hold_keys locks dedup_keys until the transaction ends, so that another enqueue with one of them looks for the job
-- only after that. A key has its own lock and, shared, one of the 1,024 of its queue. The server's locks are few: a
-- transaction with more than a hundred keys takes from the next call on only the latter, and not shared. Without
-- waiting, it may return false, and hold some.
create or replace function _hold_keys(queue int, keys text[], waiting boolean default true) returns boolean
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
    many int := coalesce(nullif(current_setting('penstock.dedup_keys', true), '')::int, 0) + cardinality(keys);
    k    record;
begin
    if current_setting('transaction_isolation') not in ('read committed', 'read uncommitted') then
        raise exception 'a dedup_key needs the isolation level read committed, this transaction is %', current_setting('transaction_isolation')
        using errcode = '25001', hint = 'it does not see what others have enqueued since it began; begin it with: begin isolation level read committed';
    end if;
    if waiting then
        perform set_config('penstock.dedup_keys', many::text, true);
    end if;
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
