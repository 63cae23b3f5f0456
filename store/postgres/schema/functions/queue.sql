-- Queues: jobs for competing consumers. DESIGN.md, "Queues", explains what is here.
--
-- A queue is a ring of segments behind one table, like an outbox. Its functions are
-- made for it, because a static statement over one segment is planned once per
-- session, and a dynamic one at every call: _define makes them of texts in which {schema},
-- {queue} and the like stand for quoted names and {dir} for the order.

-- _admit_job is the trigger of a queue, written like _admit_message. Its argument is the
-- queue's register of flags.
do $$ begin execute replace($ddl$
create or replace function _admit_job() returns trigger
language plpgsql as $fn$
begin
    if new.priority operator(pg_catalog.=) 0::smallint and new.key is null and new.headers is null
       and pg_catalog.octet_length(new.grp) operator(pg_catalog.<=) 256
       and pg_catalog.octet_length(new.payload) operator(pg_catalog.<=) 67108864 then
        return new;
    end if;
    perform {schema}._admit_other_job(tg_argv[0]::pg_catalog.regclass, new.priority, new.grp, new.key, new.headers, new.payload);
    return new;
end $fn$ $ddl$, '{schema}', quote_ident(current_schema())); end $$;

-- _admit_other_job remembers in the queue's flags what its jobs have: bit 16 + p for jobs
-- of priority p, bit 32 for jobs with a key. It need not roll back: a flag too many costs
-- a look.
create or replace function _admit_other_job(flags regclass, priority smallint, grp text, key text, headers jsonb, payload bytea) returns void
language plpgsql volatile security definer set search_path from current as $$
declare
    wanted bigint;
begin
    perform _refuse_job(payload, key, grp, priority, headers, null);
    wanted := (1::bigint << (16 + priority)) | case when key is not null then 1::bigint << 32 else 0 end;
    if pg_sequence_last_value(flags) & wanted <> wanted then
        if not exists (select from _queue q where _q(format('_%s.flags', q.name))::regclass = flags) then
            raise exception '% holds no flags of a queue', flags using errcode = '22023';
        end if;
        perform pg_advisory_lock(1885695597, flags::oid::int);
        perform setval(flags, pg_sequence_last_value(flags) | wanted);
        perform pg_advisory_unlock(1885695597, flags::oid::int);
    end if;
end $$;
