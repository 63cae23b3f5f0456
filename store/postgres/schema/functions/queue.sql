-- Queues: jobs for competing consumers. DESIGN.md, "Queues", explains these functions.
--
-- A queue is a ring of segments behind one table, like an outbox. Its functions are made for it,
-- because a static statement over one segment is planned once per session, and a dynamic one at
-- every call. _define makes them of texts in which {schema}, {queue} and the like stand for quoted
-- names and {dir} for the order.

do $$ begin execute replace(replace($ddl$
-- _validate_job is the trigger that validates the rows of a queue, written like _validate_message. It raises flags of what
-- comes: bit 16 + p of a priority p, bit 32 of a key, bit 35 of a deadline, bit 36 of a barrier. The lock for that lasts for moments, and a flag need
-- not roll back: one too many costs a scan. Its argument is the name of the register and of the function that raises them.
-- For a job that holds a barrier it calls the queue's function barrier, which only enqueuers may call.
create or replace function _validate_job() returns trigger
language plpgsql as $fn$ declare wanted bigint;
begin
    {readable}
    if new.priority operator(pg_catalog.=) 0::smallint and new.key is null and new.headers is null
       and pg_catalog.octet_length(new.group_key) operator(pg_catalog.<=) 256 and new.attempt operator(pg_catalog.<=) 1000000000
       and pg_catalog.octet_length(new.payload) operator(pg_catalog.<=) 67108864 then
        return new;
    end if;
    if new.group_key is null then
        raise exception 'the group is null' using errcode = '22023', hint = $h$leave the column out, or use '' for the jobs without one$h$;
    elsif new.priority is null then
        raise exception 'the priority is null' using errcode = '22023', hint = 'leave the column out, or use 0, the default';
    end if;
    if new.attempt operator(pg_catalog.>) 1000000000 then -- by hand: one more must be a number
        new.attempt := 1000000000;
    end if;
    if (new.headers operator(pg_catalog.->>) 'penstock-report') is null then
        perform {schema}._refuse_job(new.payload, new.key, new.group_key, new.priority, new.headers, null);
    else -- of an earlier attempt, within its separate limit; a new job has copied it from another
        perform {schema}._refuse_job(new.payload, new.key, new.group_key, new.priority, new.headers operator(pg_catalog.-) 'penstock-report', null);
        if new.id is null then new.headers := new.headers operator(pg_catalog.-) 'penstock-report'; end if;
    end if;
    wanted := (1::bigint operator(pg_catalog.<<) (16 operator(pg_catalog.+) new.priority)) operator(pg_catalog.|) case when new.key is null then 0 else 4294967296 end
              operator(pg_catalog.|) case when new.headers operator(pg_catalog.->>) 'penstock-deadline' is null then 0 else 34359738368 end
              operator(pg_catalog.|) case when new.headers operator(pg_catalog.->>) 'penstock-holds' is null then 0 else 68719476736 end;
    if new.id is null and new.headers operator(pg_catalog.?) 'penstock-waits-for' then
        raise exception 'an INSERT cannot write a job that waits for barriers' using errcode = '23514', hint = 'use penstock.enqueue';
    elsif new.id is null and tg_op operator(pg_catalog.=) 'INSERT' and (new.headers operator(pg_catalog.->>) 'penstock-holds') is not null then
        if pg_catalog.left(new.headers operator(pg_catalog.->>) 'penstock-holds', 1) operator(pg_catalog.=) '0' then -- copied from one that is watched
            new.headers := new.headers operator(pg_catalog.||) pg_catalog.jsonb_build_object('penstock-holds', pg_catalog.ltrim(new.headers operator(pg_catalog.->>) 'penstock-holds', '0'));
        end if;
        execute pg_catalog.format('select %s($1, $2)', pg_catalog.regexp_replace(tg_argv[0], 'flags("?)$', 'barrier\1')) using (new.headers operator(pg_catalog.->>) 'penstock-holds')::bigint, new.seq;
    end if;
    if (pg_catalog.pg_sequence_last_value(tg_argv[0]::pg_catalog.regclass) operator(pg_catalog.&) wanted) operator(pg_catalog.<>) wanted then
        execute pg_catalog.format('select %s($1)', tg_argv[0]) using wanted;
    end if;
    return new;
end $fn$ $ddl$, '{readable}', _readable('new.key, new.group_key, new.headers')), '{schema}', quote_ident(current_schema())); end $$;
