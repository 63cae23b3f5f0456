-- Jobs have options: unique_key and its kin, max_attempts, timeout and deadline. A job whose deadline has passed ends as expired, and is counted.

drop function if exists enqueue_bytes(text, bytea, text, text, int, timestamptz, text, jsonb, text);
drop function if exists enqueue(text, text, text, text, int, timestamptz, text, jsonb, text);
drop function if exists enqueue(text, jsonb, text, text, int, timestamptz, text, jsonb, text);
drop function if exists enqueue_many_bytes(text, bytea[], text[], text[], int[], timestamptz[], text[], jsonb[], text[]);
drop function if exists enqueue_many(text, text[], text[], text[], int[], timestamptz[], text[], jsonb[], text[]);
drop function if exists queue_status(text);
drop function if exists _with_kind(jsonb, text);

-- A unique job that has not ended, as _unended finds it: state is ring, scheduled or leased.
create type _unique_job as (
    id         bigint,
    key        text,
    state      text,
    created_at timestamptz,
    place      regclass,
    at         tid
);

do $$
declare
    made text;
begin
    for made in select format('%I.%I', current_schema(), format('_%s.expired', q.name)) from _queue q loop
        execute format('create sequence %s minvalue 0', made);
        perform setval(made, 0);
    end loop;
end $$;
