-- The ids that a consumer has received. _define_inbox fills in the words in braces.

insert into _template (kind, name, body) select 'inbox', 'id', $$

-- {enter} returns the ring's register. From then on until its end the transaction holds the turn's
-- lock, in shared form, and a turn settles only when no transaction holds the lock of the one
-- before.
create or replace function {enter}() returns bigint
language plpgsql volatile as $fn$ declare
    ring bigint := pg_sequence_last_value({ring});
    now  bigint;
begin
    loop
        perform pg_advisory_xact_lock_shared({class}, {id} * 4 + (ring / 2 % 4)::int);
        now := pg_sequence_last_value({ring});
        exit when now / 2 is not distinct from ring / 2;
        ring := now;
    end loop;
    if now is null then
        raise exception 'the sequence % has no value', {ring} using errcode = '55000', hint = 'it was restarted by hand: give it back the value that it had, by setval';
    end if;
    return now;
end $fn$;

-- {see} notes an id and returns whether it is new. It is written in the turns that decide, and the
-- unique index makes the transaction that comes second wait for the first. Ids of the turns before
-- them were committed long ago: there it is enough to look, if the statement's snapshot is of now.
create or replace function {see}(in_id text, ring bigint) returns boolean
language plpgsql volatile as $fn$ declare
    turn    constant bigint := ring / 2;
    moving  constant bigint := ring % 2;
    oldest  constant bigint := turn - 2 - moving;
    decides constant bigint := case when current_setting('transaction_isolation') = 'read committed' then turn - moving else oldest end;
begin
    for t in oldest .. decides - 1 loop
        {each: perform from {seen} s where s.id = in_id;}
        if found then return false; end if;
    end loop;
    for t in decides .. turn loop
        {each: insert into {seen} (id) values (in_id) on conflict do nothing;}
        if not found then return false; end if;
    end loop;
    return true;
end $fn$;

-- {received} returns whether an id was received.
create or replace function {received}(in_id text, ring bigint) returns boolean
language plpgsql volatile as $fn$ begin
    for t in reverse ring / 2 .. ring / 2 - 2 - ring % 2 loop
        {each: perform from {seen} s where s.id = in_id;}
        if found then return true; end if;
    end loop;
    return false;
end $fn$;

-- {first} is inbox for this consumer.
create or replace function {first}(message_id text) returns boolean
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set jit = off set plan_cache_mode = force_generic_plan as $fn$ begin
    if (message_id <> '' and octet_length(message_id) <= 256) is not true then
        perform {schema}._refuse_inboxed(message_id, null, null, null, '');
    end if;
    if {is_due} then perform {maintain}(false); end if;
    return {see}(message_id, {enter}());
end $fn$;

-- {first_of} is inbox_many. Ids are written in one order, so that two calls do not wait
-- for each other.
create or replace function {first_of}(ids text[]) returns setof text
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set jit = off set plan_cache_mode = force_generic_plan as $fn$ declare
    ring    bigint;
    turn    bigint;
    oldest  bigint;
    decides bigint;
    bad     text;
    fresh   text[];
begin
    for bad in select i from unnest(ids) i where (i <> '' and octet_length(i) <= 256) is not true loop
        perform {schema}._refuse_inboxed(bad, null, null, null, '');
    end loop;
    if {is_due} then perform {maintain}(false); end if;
    ring := {enter}();
    turn := ring / 2;
    oldest := turn - 2 - ring % 2;
    decides := case when current_setting('transaction_isolation') = 'read committed' then turn - ring % 2 else oldest end;
    fresh := array(select distinct i collate "C" from unnest(ids) i order by 1);
    for t in oldest .. decides - 1 loop
        {each: fresh := array(select i from unnest(fresh) with ordinality u(i, o)
                               where not exists (select from {seen} s where s.id = i) order by o);}
    end loop;
    for t in decides .. turn loop
        {each: with new as (insert into {seen} (id) select i from unnest(fresh) with ordinality u(i, o) order by o on conflict do nothing returning id)
               select coalesce(array_agg(id order by id), '{}') into fresh from new;}
    end loop;
    return query select i from unnest(ids) with ordinality u(i, o) join unnest(fresh) f on f = i group by i order by min(o);
end $fn$;

$$;
