-- Maintenance that keeps an inbox flat: its ring turns, and the search for what is held begins where the last one ended.

insert into _template (kind, name, body) select 'inbox', 'maintenance', $$

-- {maintain} turns the ring: a call does it now and then, before it does anything else. It moves
-- registers, which a rollback does not undo, and truncates segments out of their window, which no
-- call looks into any more.
create or replace function {maintain}(force boolean) returns void
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set jit = off as $fn$ declare
    now_ms  constant bigint := extract(epoch from clock_timestamp()) * 1000;
    half_ms bigint;
    ring    bigint;
    turn    bigint;
    low     timestamptz;
    spare   int;
    rest    boolean;
    wait_ms bigint;
begin
    if not force and not {is_due} or current_setting('transaction_isolation') <> 'read committed' then return; end if;
    if not pg_try_advisory_xact_lock({class}, -{id}) then return; end if;
    if pg_sequence_last_value({since}) > now_ms then -- the clock was ahead
        perform setval({since}, now_ms);
    end if;
    if pg_sequence_last_value({low}) > now_ms then -- what is held from now on is due before that
        perform setval({low}, 0);
    end if;
    if pg_sequence_last_value({holds}) = 1 then perform {advance}(); end if;
    half_ms := (select extract(epoch from keep) * 500 from {schema}._inbox where id = {id});
    wait_ms := least(half_ms / 8, 10000);
    ring := pg_sequence_last_value({ring});
    turn := ring / 2;
    spare := (turn + 1) % 4;
    if ring % 2 = 1 then
        if {is_locked}({class}, {id} * 4 + ((turn - 1) % 4)::int) then
            wait_ms := least(wait_ms, 1000);
        else
            perform setval({since}, now_ms);
            perform setval({ring}, turn * 2);
        end if;
    elsif not {is_empty}(spare) then
        perform {empty}(spare);
    elsif now_ms - pg_sequence_last_value({since}) >= half_ms then
        low := to_timestamp(pg_sequence_last_value({low}) / 1000.0);
        for t in turn - 2 .. turn - 2 loop -- a message that is held keeps its id known
            {each: rest := exists (select from {held} h where h.due >= low limit 1);}
        end loop;
        if not rest then
            perform setval({ring}, (turn + 1) * 2 + 1);
            wait_ms := least(wait_ms, 1000);
        end if;
    end if;
    perform setval({next}, now_ms + wait_ms);
end $fn$;

-- {is_locked} returns whether a transaction, this one included, has an advisory lock.
create or replace function {is_locked}(class int, key int) returns boolean
language sql volatile as $fn$
    select exists (select from pg_locks l
                    where l.locktype = 'advisory' and l.objsubid = 2 and l.classid = $1::oid and l.objid = $2::oid
                      and l.database = (select d.oid from pg_database d where d.datname = current_database())) $fn$;

-- {is_empty} returns whether a slot's tables take no space. It looks at sizes and opens none of them.
create or replace function {is_empty}(slot int) returns boolean
language plpgsql volatile as $fn$ begin
    for t in slot .. slot loop
        {each: return pg_relation_size({seen_name}::regclass) + pg_relation_size({held_name}::regclass)
                   + pg_relation_size({heads_name}::regclass) + pg_relation_size({gaps_name}::regclass) = 0;}
    end loop;
end $fn$;

-- {empty} truncates a slot's tables, if it has their locks within 20 ms. They are out of the window, so all that is in them may go.
create or replace function {empty}(slot int) returns void
language plpgsql volatile set lock_timeout = '20ms' as $fn$ begin
    for t in slot .. slot loop
        {each: truncate table {seen}, {held}, {heads}, {gaps};}
    end loop;
exception when lock_not_available or object_in_use then
    null; -- someone reads there: the next maintenance tries again
end $fn$;

-- {enter_holding} is {enter} for the transactions that hold a message back, which come
-- in epochs.
create or replace function {enter_holding}() returns void
language plpgsql volatile as $fn$ declare
    epoch bigint := pg_sequence_last_value({epoch});
    now   bigint;
begin
    loop
        perform pg_advisory_xact_lock_shared({holding_class}, {id} * 2 + (epoch % 2)::int);
        now := pg_sequence_last_value({epoch});
        exit when now is not distinct from epoch;
        epoch := now;
    end loop;
    if now is null then
        raise exception 'the sequence % has no value', {epoch} using errcode = '55000', hint = 'it was restarted by hand: give it back the value that it had, by setval';
    end if;
end $fn$;

-- {advance} moves low, below which no held message is due, visible or not: dead rows
-- below it are not walked over. A candidate is noted, then an epoch begins. A transaction that
-- holds a message in it has read the candidate, and is due no earlier. Once those of the epoch
-- before have ended, what is due before the candidate is visible.
create or replace function {advance}() returns void
language plpgsql volatile as $fn$ declare
    now_ms    constant bigint := extract(epoch from clock_timestamp()) * 1000;
    epoch     bigint;
    ring      bigint;
    low       timestamptz;
    earliest  timestamptz;
    least_due timestamptz;
begin
    if not pg_try_advisory_xact_lock({class}, -{id}) then return; end if;
    epoch := pg_sequence_last_value({epoch});
    if pg_sequence_last_value({candidate}) = 0 then
        if now_ms - pg_sequence_last_value({low}) < 1000 then return; end if;
        perform setval({candidate}, now_ms);
        epoch := epoch + 1;
        perform setval({epoch}, epoch);
    end if;
    if {is_locked}({holding_class}, {id} * 2 + ((epoch - 1) % 2)::int) then return; end if;
    low := to_timestamp(pg_sequence_last_value({low}) / 1000.0);
    least_due := to_timestamp(pg_sequence_last_value({candidate}) / 1000.0);
    ring := {enter}();
    for t in ring / 2 - 2 - ring % 2 .. ring / 2 loop
        {each: select h.due into earliest from {held} h where h.due >= low order by h.due limit 1;}
        least_due := least(least_due, earliest);
    end loop;
    perform setval({low}, greatest(pg_sequence_last_value({low}), floor(extract(epoch from least_due) * 1000)::bigint - 1));
    perform setval({candidate}, 0);
end $fn$;

$$;
