-- Inboxes: what a consumer has received already, and, per key, what came early.
-- docs/inbox.md and inbox/DESIGN.md explain what is here and why it is exact.
--
-- Each consumer has rings of its own, four segments each of ids, of held messages and of
-- the heads of keys, which turn together, and functions of its own: see _queue_functions. Their names
-- begin with two underscores, which nothing that belongs to an outbox or a queue does.
--
-- The register ring holds turn * 2 + moving. Turn t writes to the slot t % 4. While
-- it is moving, turn - 1 still decides what is new, together with turn; live are the
-- turns down to turn - 3. Once nobody is left who knows only turn - 1, turn has
-- settled, alone decides, and turn - 3 is out of its window: live are three turns.

-- +goose Up

create table _inbox (
    id         integer generated always as identity primary key,
    consumer   text not null unique check (octet_length(consumer) between 1 and 48),
    keep       interval not null,
    created_at timestamptz not null default now()
);

-- What may be processed now. gap: the message before it, missing, did not come in
-- time (or was given up before). late: it was reported missing itself, or since the
-- message before it was handed over others of its key were, past a gap.
create type inboxed as (
    message_id text,
    key        text,
    headers    jsonb,
    payload    bytea,
    gap        boolean,
    missing    text,
    late       boolean
);

-- _refuse_inboxed raises what is wrong with a message, as a consumer is to read it.
-- +goose StatementBegin
create function _refuse_inboxed(message_id text, previous_id text, key text, headers jsonb, payload bytea) returns void
language plpgsql volatile set search_path from current as $$
begin
    if message_id is null or message_id = '' then
        raise exception 'the message has no id' using errcode = '22023', hint = 'pass the id that the message carries, for example AMQP message-id';
    elsif octet_length(message_id) > 256 then
        raise exception 'the message id has % bytes, the limit is 256', octet_length(message_id) using errcode = '23514', hint = 'use a hash of it';
    elsif octet_length(previous_id) > 256 then
        raise exception 'the previous id has % bytes, the limit is 256', octet_length(previous_id) using errcode = '23514', hint = 'pass the header penstock-previous as it came';
    elsif previous_id = message_id then
        raise exception 'message % is its own predecessor', quote_literal(message_id) using errcode = '22023', hint = 'pass the header penstock-previous, or null without one';
    elsif octet_length(key) > 1024 then
        raise exception 'the key has % bytes, the limit is 1024', octet_length(key) using errcode = '23514', hint = 'use a hash of it';
    elsif payload is null then
        raise exception 'the payload is null' using errcode = '22023', hint = 'use an empty payload if the message has none';
    elsif octet_length(payload) > 67108864 then
        raise exception 'the payload has % bytes, the limit is 67108864', octet_length(payload) using errcode = '23514', hint = 'hold a reference to it';
    elsif jsonb_typeof(headers) <> 'object' then
        raise exception 'the headers are a JSON %, expected an object', jsonb_typeof(headers) using errcode = '23514', hint = 'for example {"trace": "4bf92f35"}';
    end if;
end $$;
-- +goose StatementEnd

-- +goose StatementBegin
create function _check_keep(keep interval) returns void
language plpgsql set search_path from current as $$
begin
    if (keep between interval '1 minute' and interval '10 years') is not true then
        raise exception 'keep is %, expected 1 minute to 10 years', coalesce(keep::text, 'null')
        using errcode = '22023', hint = 'give the longest time after which a message may come again, for example interval ''7 days''';
    end if;
end $$;
-- +goose StatementEnd

-- _inbox_functions is the text of a consumer's own functions. {each: …} stands for a
-- case of the four slots, in which {seen},
-- {held} and {heads} are the slot's tables.
-- +goose StatementBegin
create function _inbox_functions() returns text
language sql immutable set search_path from current as $text$ select $$

-- {enter} returns the ring's register. From then on until its end the transaction holds
-- the turn's lock, in shared form, and a turn settles only when nobody holds the lock of
-- the one before.
create or replace function {enter}() returns bigint
language plpgsql volatile as $fn$
declare
    ring bigint := pg_sequence_last_value({ring});
    now  bigint;
begin
    loop
        perform pg_advisory_xact_lock_shared({class}, {id} * 4 + (ring / 2 % 4)::int);
        now := pg_sequence_last_value({ring});
        exit when now / 2 = ring / 2;
        ring := now;
    end loop;
    return now;
end $fn$;

-- {see} notes an id and says whether it is new. In the turns that decide, it is written,
-- and the unique index makes whoever comes second wait for the first. What the
-- turns before them have is committed since long: there it is enough to look, if the
-- statement's snapshot is of now.
create or replace function {see}(in_id text, ring bigint) returns boolean
language plpgsql volatile as $fn$
declare
    turn    constant bigint := ring / 2;
    moving  constant bigint := ring % 2;
    oldest  constant bigint := turn - 2 - moving;
    decides constant bigint := case when current_setting('transaction_isolation') = 'read committed' then turn - moving else oldest end;
begin
    for t in oldest .. decides - 1 loop
        {each: perform from {seen} s where s.id = in_id and not s.missing;}
        if found then
            return false;
        end if;
    end loop;
    for t in decides .. turn loop
        {each: insert into {seen} (id) values (in_id) on conflict do nothing;}
        if not found then
            return false;
        end if;
    end loop;
    return true;
end $fn$;

-- {seen_as} says whether an id was received, or was reported missing.
create or replace function {seen_as}(in_id text, in_missing boolean, ring bigint) returns boolean
language plpgsql volatile as $fn$
begin
    for t in reverse ring / 2 .. ring / 2 - 2 - ring % 2 loop
        {each: perform from {seen} s where s.id = in_id and s.missing = in_missing;}
        if found then
            return true;
        end if;
    end loop;
    return false;
end $fn$;

-- {held_after} is the predecessor that a held message waits for, null if the id is not held.
create or replace function {held_after}(in_id text, ring bigint) returns text
language plpgsql volatile as $fn$
declare
    found_id text;
begin
    for t in reverse ring / 2 .. ring / 2 - 2 - ring % 2 loop
        {each: select h.previous into found_id from {held} h where h.id = in_id;}
        exit when found_id is not null;
    end loop;
    return found_id;
end $fn$;

-- {first} is inbox for this consumer.
create or replace function {first}(message_id text) returns boolean
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set jit = off set plan_cache_mode = force_generic_plan as $fn$
begin
    if (message_id <> '' and octet_length(message_id) <= 256) is not true then
        perform {schema}._refuse_inboxed(message_id, null, null, null, '');
    end if;
    if extract(epoch from clock_timestamp()) * 1000 >= pg_sequence_last_value({next}) then
        perform {tick}(false);
    end if;
    return {see}(message_id, {enter}());
end $fn$;

-- {first_of} is inbox_many. Ids are written in one order, so that two calls do not wait
-- for each other.
create or replace function {first_of}(ids text[]) returns setof text
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set jit = off set plan_cache_mode = force_generic_plan as $fn$
declare
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
    if extract(epoch from clock_timestamp()) * 1000 >= pg_sequence_last_value({next}) then
        perform {tick}(false);
    end if;
    ring := {enter}();
    turn := ring / 2;
    oldest := turn - 2 - ring % 2;
    decides := case when current_setting('transaction_isolation') = 'read committed' then turn - ring % 2 else oldest end;
    fresh := array(select distinct i collate "C" from unnest(ids) i order by 1);
    for t in oldest .. decides - 1 loop
        {each: fresh := array(select i from unnest(fresh) with ordinality u(i, o)
                               where not exists (select from {seen} s where s.id = i and not s.missing) order by o);}
    end loop;
    for t in decides .. turn loop
        {each: with new as (insert into {seen} (id) select i from unnest(fresh) with ordinality u(i, o) order by o on conflict do nothing returning id)
               select coalesce(array_agg(id order by id), '{}') into fresh from new;}
    end loop;
    return query select i from unnest(ids) with ordinality u(i, o) where i = any (fresh) group by i order by min(o);
end $fn$;

-- {in_order} is inbox_in_order. The key's lock comes first: whoever has it sees all that
-- others of the key have done, and the register after it.
create or replace function {in_order}(in_key text, in_id text, in_previous text, in_headers jsonb, in_payload bytea, wait interval) returns setof {schema}.inboxed
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set jit = off set plan_cache_mode = force_generic_plan as $fn$
declare
    ring    bigint;
    turn    bigint;
    late    boolean := false;
    missing text;
    due_at  timestamptz;
    one     {schema}.inboxed;
begin
    if (in_id <> '' and octet_length(in_id) <= 256 and octet_length(in_payload) <= 67108864 and (in_headers is null or jsonb_typeof(in_headers) = 'object')
        and (in_key is null or octet_length(in_key) <= 1024) and (in_previous is null or octet_length(in_previous) <= 256 and in_previous <> in_id)) is not true then
        perform {schema}._refuse_inboxed(in_id, in_previous, in_key, in_headers, in_payload);
    end if;
    if wait is null or wait < interval '0' or wait > (select keep / 2 from {schema}._inbox where id = {id}) then
        raise exception 'wait is %, expected nothing to half of what the inbox keeps', coalesce(wait::text, 'null')
        using errcode = '22023', hint = 'for example interval ''30 s''; set_inbox changes what the inbox keeps';
    end if;
    perform {schema}._wants_read_committed();
    if in_key <> '' then
        perform pg_advisory_xact_lock(hashtextextended(in_key, {key_seed}));
    end if;
    if extract(epoch from clock_timestamp()) * 1000 >= pg_sequence_last_value({next}) then
        perform {tick}(false);
    end if;
    ring := {enter}();
    turn := ring / 2;
    if not {see}(in_id, ring) then
        return;
    end if;
    if in_key <> '' then
        late := {seen_as}(in_id, true, ring);
        if in_previous <> '' and not late then
            if not {seen_as}(in_previous, false, ring) then
                if {seen_as}(in_previous, true, ring) then
                    missing := in_previous;
                else
                    due_at := clock_timestamp() + wait;
                end if;
            elsif {held_after}(in_previous, ring) is not null then
                due_at := clock_timestamp() + wait;
            end if;
        end if;
    end if;
    if due_at is not null then
        if pg_sequence_last_value({holds}) = 0 then
            perform setval({holds}, 1);
        end if;
        perform {enter_holding}();
        due_at := greatest(due_at, to_timestamp(pg_sequence_last_value({candidate}) / 1000.0)); -- this one first
        due_at := greatest(due_at, to_timestamp(pg_sequence_last_value({low}) / 1000.0));
        for t in turn .. turn loop
            {each: insert into {held} (id, previous, key, due, headers, payload) values (in_id, in_previous, in_key, due_at, in_headers, in_payload);}
        end loop;
        return;
    end if;
    one := row(in_id, in_key, in_headers, in_payload, missing is not null, missing, late);
    if in_key <> '' then
        return query select * from {release}(one, in_previous, ring);
    else
        return next one;
    end if;
end $fn$;

-- {release} hands over a message, then what was held for it, and what was held for that. A
-- key's head is the message that was handed over last; what follows another one, long
-- handed over, is late, and leaves the head where it is.
create or replace function {release}(one {schema}.inboxed, in_previous text, ring bigint) returns setof {schema}.inboxed
language plpgsql volatile as $fn$
declare
    in_key constant text := one.key;
    head   text;
    was    text;
    ends   text[] := array[one.message_id];
    step   {schema}.inboxed[];
    part   {schema}.inboxed[];
begin
    for t in reverse ring / 2 .. ring / 2 - 2 - ring % 2 loop
        {each: select h.id into head from {heads} h where h.key = in_key order by h.n desc limit 1;}
        exit when head is not null;
    end loop;
    was := head;
    one.late := one.late or in_previous <> '' and not one.gap and head <> in_previous is true;
    if not one.late then
        head := one.message_id;
    end if;
    return next one;
    while cardinality(ends) > 0 and pg_sequence_last_value({holds}) = 1 loop
        step := '{}';
        for t in ring / 2 - 2 - ring % 2 .. ring / 2 loop
            {each: with d as (delete from {held} h where h.previous = any (ends) returning h.*)
                   select array_agg(row(d.id, d.key, d.headers, d.payload, false, d.previous, false)::{schema}.inboxed order by d.due) into part from d;}
            step := step || part;
        end loop;
        ends := '{}';
        foreach one in array step loop
            ends := ends || one.message_id;
            one.late := one.missing <> head is true;
            one.missing := null;
            if not one.late then
                head := one.message_id;
            end if;
            return next one;
        end loop;
    end loop;
    if head is distinct from was then
        for t in ring / 2 .. ring / 2 loop
            {each: insert into {heads} (key, id) values (in_key, head);}
        end loop;
    end if;
end $fn$;

-- {due} is inbox_due: of up to n keys whose wait is over, what is held from the missing
-- message on. A key that another transaction has is left to that one, or to the next call.
create or replace function {due}(n int) returns setof {schema}.inboxed
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set jit = off set plan_cache_mode = force_generic_plan as $fn$
declare
    ring  bigint;
    low   timestamptz;
    now   constant timestamptz := clock_timestamp();
    ids   text[] := '{}';
    keys  text[] := '{}';
    early record;
    root  text;
    prior text;
    above text;
    mark  text;
    steps int;
    todo  int := n;
    one   {schema}.inboxed;
begin
    if (n between 1 and 1000) is not true then
        raise exception 'n is %, expected 1 to 1000', coalesce(n::text, 'null') using errcode = '22023', hint = 'call inbox_due again for more';
    end if;
    perform {schema}._wants_read_committed();
    if extract(epoch from clock_timestamp()) * 1000 >= pg_sequence_last_value({next}) then
        perform {tick}(false);
    end if;
    if pg_sequence_last_value({holds}) = 0 then
        return;
    end if;
    perform {advance}();
    ring := {enter}();
    low := to_timestamp(pg_sequence_last_value({low}) / 1000.0);
    for t in ring / 2 - 2 - ring % 2 .. ring / 2 loop
        {each: select coalesce(array_agg(h.id order by h.due), '{}') as ids, coalesce(array_agg(h.key order by h.due), '{}') as keys into early
                 from (select h.id, h.key, h.due from {held} h where h.due >= low and h.due <= now order by h.due limit n * 4 + 64) h;}
        ids := ids || early.ids;
        keys := keys || early.keys;
    end loop;
    for i in 1 .. cardinality(ids) loop
        exit when todo = 0;
        continue when not pg_try_advisory_xact_lock(hashtextextended(keys[i], {key_seed}));
        root := ids[i];
        prior := {held_after}(root, ring); -- in a statement that began under the lock
        continue when prior is null;       -- it was released meanwhile
        mark := root;
        steps := 0;
        loop -- up to what waits for nothing that is held; a circle, which no outbox makes, is cut somewhere
            above := {held_after}(prior, ring);
            exit when above is null or prior = mark;
            root := prior;
            prior := above;
            steps := steps + 1;
            if steps & (steps - 1) = 0 then
                mark := root;
            end if;
        end loop;
        for t in ring / 2 - 2 - ring % 2 .. ring / 2 loop
            {each: delete from {held} h where h.id = root
                   returning h.id, h.key, h.headers, h.payload, false, null, false into one;}
            exit when one.message_id is not null;
        end loop;
        continue when one.message_id is null; -- ids of one key that were used for another
        if not {seen_as}(prior, false, ring) then
            one.gap := true;
            one.missing := prior;
            for t in ring / 2 .. ring / 2 loop
                {each: insert into {seen} (id, missing) values (prior, true) on conflict do nothing;}
            end loop;
        end if;
        return query select * from {release}(one, prior, ring);
        todo := todo - 1;
    end loop;
end $fn$;

-- {enter_holding} is {enter} for the transactions that hold a message back, which come
-- in epochs.
create or replace function {enter_holding}() returns void
language plpgsql volatile as $fn$
declare
    epoch bigint := pg_sequence_last_value({epoch});
    now   bigint;
begin
    loop
        perform pg_advisory_xact_lock_shared({holding_class}, {id} * 2 + (epoch % 2)::int);
        now := pg_sequence_last_value({epoch});
        exit when now = epoch;
        epoch := now;
    end loop;
end $fn$;

-- {advance} moves low, below which no held message is due, visible or not: dead rows
-- below it are not walked over. A candidate is noted, then an epoch begins. Whoever
-- holds a message in it has read the candidate, and is due no earlier. Once those of the
-- epoch before have ended, what is due before the candidate is visible.
create or replace function {advance}() returns void
language plpgsql volatile as $fn$
declare
    now_ms    constant bigint := extract(epoch from clock_timestamp()) * 1000;
    epoch     bigint;
    ring      bigint;
    low       timestamptz;
    earliest  timestamptz;
    least_due timestamptz;
begin
    if not pg_try_advisory_xact_lock({class}, -{id}) then
        return;
    end if;
    epoch := pg_sequence_last_value({epoch});
    if pg_sequence_last_value({candidate}) = 0 then
        if now_ms - pg_sequence_last_value({low}) < 1000 then
            return;
        end if;
        perform setval({candidate}, now_ms);
        epoch := epoch + 1;
        perform setval({epoch}, epoch);
    end if;
    if {is_locked}({holding_class}, {id} * 2 + ((epoch - 1) % 2)::int) then
        return;
    end if;
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

-- {is_locked} says whether a transaction, this one included, has an advisory lock.
create or replace function {is_locked}(class int, key int) returns boolean
language sql volatile as $fn$
    select exists (select from pg_locks l
                    where l.locktype = 'advisory' and l.objsubid = 2 and l.classid = $1::oid and l.objid = $2::oid
                      and l.database = (select d.oid from pg_database d where d.datname = current_database()))
$fn$;

-- {tick} turns the ring: a call does it now and then, before it does anything else. It
-- moves registers, which a rollback does not undo, and truncates what is out of its
-- window, which nobody looks into any more.
create or replace function {tick}(force boolean) returns void
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set jit = off as $fn$
declare
    now_ms  constant bigint := extract(epoch from clock_timestamp()) * 1000;
    half_ms bigint;
    ring    bigint;
    turn    bigint;
    low     timestamptz;
    spare   int;
    rest    boolean;
    wait_ms bigint;
begin
    if not force and now_ms < pg_sequence_last_value({next}) or current_setting('transaction_isolation') <> 'read committed' then
        return;
    end if;
    if not pg_try_advisory_xact_lock({class}, -{id}) then
        return;
    end if;
    if pg_sequence_last_value({holds}) = 1 then
        perform {advance}();
    end if;
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

create or replace function {is_empty}(slot int) returns boolean
language plpgsql volatile as $fn$
begin
    for t in slot .. slot loop
        {each: return pg_relation_size({seen_name}::regclass) + pg_relation_size({held_name}::regclass)
                   + pg_relation_size({heads_name}::regclass) = 0;}
    end loop;
end $fn$;

create or replace function {empty}(slot int) returns void
language plpgsql volatile set lock_timeout = '20ms' as $fn$
begin
    for t in slot .. slot loop
        {each: truncate table {seen}, {held}, {heads};}
    end loop;
exception when lock_not_available or object_in_use then
    null; -- someone reads there: the next tick tries again
end $fn$;

$$ $text$;
-- +goose StatementEnd

-- _wants_read_committed is for those who take a lock and then look.
-- +goose StatementBegin
create function _wants_read_committed() returns void
language plpgsql set search_path from current as $$
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        raise exception 'order is kept at the isolation level read committed, this transaction is %', current_setting('transaction_isolation')
        using errcode = '25001', hint = 'begin it with: begin isolation level read committed';
    end if;
end $$;
-- +goose StatementEnd

-- _inbox_name is the quoted name of a part of an inbox.
create function _inbox_name(id int, part text) returns text
language sql stable set search_path from current
return _q(format('__inbox.%s.%s', id, part));

-- _define_inbox makes the functions of an inbox, or makes them anew.
-- +goose StatementBegin
create function _define_inbox(id int) returns void
language plpgsql set search_path from current as $$
declare
    text  text := _inbox_functions();
    own   constant text[] := '{enter,enter_holding,is_locked,see,seen_as,held_after,first,first_of,in_order,release,due,advance,tick,is_empty,empty}';
    word  text;
    part  text;
    body  text;
    here  text;
    name  text;
    cases text;
    made  regprocedure;
begin
    loop
        part := substring(text from '\{each: (?:[^{}]|\{[a-z_]*\})*\}');
        exit when part is null;
        body := substring(part from 8 for length(part) - 8);
        cases := 'case t % 4';
        for slot in 0 .. 3 loop
            here := body;
            foreach word in array array['seen', 'held', 'heads'] loop
                name := _inbox_name(id, word || '.' || slot);
                here := replace(replace(here, '{' || word || '}', name), '{' || word || '_name}', quote_literal(name));
            end loop;
            cases := cases || format(E'\n        when %s then ', slot) || here;
        end loop;
        text := replace(text, part, cases || E'\n        end case;');
    end loop;
    foreach word in array own loop
        text := replace(text, '{' || word || '}', _inbox_name(id, word));
    end loop;
    foreach word in array array['ring', 'since', 'next', 'holds', 'low', 'candidate', 'epoch'] loop
        text := replace(text, '{' || word || '}', quote_literal(_inbox_name(id, word)) || '::regclass');
    end loop;
    text := replace(text, '{schema}', quote_ident(current_schema()));
    text := replace(replace(text, '{class}', '1885695598'), '{holding_class}', '1885695599');
    text := replace(text, '{key_seed}', (id + (1::bigint << 40))::text); -- queues use what is below
    text := replace(text, '{id}', id::text);
    execute text;
    for made in select p.oid from pg_proc p where p.pronamespace = quote_ident(current_schema())::regnamespace and p.proname like format('\_\_inbox.%s.%%', id) loop
        execute format('revoke execute on function %s from public', made);
    end loop;
end $$;
-- +goose StatementEnd

-- create_inbox makes an inbox for a consumer. Ids are known for at least keep after the
-- transaction that received them, and for up to half as long again. Errors: 42P07
-- (duplicate_table) if there is one, 22023, 23514.
-- +goose StatementBegin
create function create_inbox(consumer text, keep interval default '7 days') returns void
language plpgsql set search_path from current as $$
declare
    made     int;
    now_ms   constant bigint := extract(epoch from clock_timestamp()) * 1000;
    register record;
begin
    if (octet_length(consumer) between 1 and 48) is not true then
        raise exception 'the consumer''s name has % bytes, expected 1 to 48', coalesce(octet_length(consumer), 0)
        using errcode = '23514', hint = 'name what consumes, for example ''billing''';
    end if;
    perform _check_keep(keep);
    perform pg_advisory_xact_lock('_inbox'::regclass::oid::int, 0); -- the dispatch functions are made by one at a time
    if exists (select from _inbox i where i.consumer = create_inbox.consumer) then
        raise exception 'the inbox of % exists already', quote_literal(consumer)
        using errcode = '42P07', hint = format('to change how long it keeps ids: select %s.set_inbox(%L, %L)', quote_ident(current_schema()), consumer, keep);
    end if;
    insert into _inbox (consumer, keep) values (consumer, keep) returning id into made;
    -- Sequences used as registers, see create_outbox. since: when the turn settled, in ms;
    -- next: when to tick; holds: 1 once a message was held; low and so on: see advance.
    for register in select * from (values ('ring', 4::bigint * 2), ('since', now_ms), ('next', now_ms), ('holds', 0::bigint),
                                          ('low', now_ms), ('candidate', 0::bigint), ('epoch', 1::bigint)) r(name, value) loop
        execute format('create sequence %s minvalue 0', _inbox_name(made, register.name));
        perform setval(_inbox_name(made, register.name), register.value);
    end loop;
    execute format('create sequence %s', _inbox_name(made, 'n'));
    for slot in 0 .. 3 loop
        execute format('create table %s (id text collate "C" not null, missing boolean not null default false, primary key (id, missing))
                        with (autovacuum_enabled = false)', _inbox_name(made, 'seen.' || slot));
        execute format('create table %1$s (
                            id       text collate "C" primary key,
                            previous text collate "C" not null,
                            key      text not null,
                            due      timestamptz not null,
                            headers  jsonb,
                            payload  bytea not null)', _inbox_name(made, 'held.' || slot)); -- vacuumed: rows are deleted as they are released
        execute format('create table %s (
                            key text collate "C" not null,
                            n   bigint not null default nextval(%L),
                            id  text collate "C" not null,
                            primary key (key, n))
                        with (autovacuum_enabled = false)', _inbox_name(made, 'heads.' || slot), _inbox_name(made, 'n'));
        execute format('create index on %s (previous)', _inbox_name(made, 'held.' || slot));
        execute format('create index on %s (due)', _inbox_name(made, 'held.' || slot));
    end loop;
    perform _define_inbox(made);
    perform _dispatch_inboxes();
end $$;
-- +goose StatementEnd

-- _dispatch_inboxes makes the functions that consumers call anew: a branch for each
-- inbox, see _dispatch.
-- +goose StatementBegin
create function _dispatch_inboxes() returns void
language plpgsql set search_path from current as $$
declare
    public_functions constant text[] := array[
        'inbox(consumer text, message_id text) returns boolean', 'return {first}(message_id)',
        'inbox_many(consumer text, message_ids text[]) returns setof text', 'return query select * from {first_of}(message_ids)',
        'inbox_in_order(consumer text, key text, message_id text, previous_id text, headers jsonb, payload bytea, wait interval default ''30 s'') returns setof inboxed',
        'return query select * from {in_order}(key, message_id, previous_id, headers, payload, wait)',
        'inbox_due(consumer text, n int default 10) returns setof inboxed', 'return query select * from {due}(n)',
        'maintain_inbox(consumer text) returns void', 'perform {tick}(true)'];
    branches text;
    word     text;
begin
    for i in 1 .. cardinality(public_functions) by 2 loop
        word := substring(public_functions[i + 1] from '\{(\w+)\}');
        select coalesce(string_agg(format(E'\n    when %L then %s;', x.consumer,
                                          replace(public_functions[i + 1], '{' || word || '}', _inbox_name(x.id, word))), '' order by x.id), '')
          into branches from _inbox x;
        execute format($ddl$
create or replace function %s
language plpgsql volatile as $fn$
begin
    case consumer
    when null then null;%s
    else
        raise exception 'there is no inbox of %%', coalesce(quote_literal(consumer), 'null')
        using errcode = '42P01', hint = 'its owner creates it with: select %s.create_inbox(' || coalesce(quote_literal(consumer), 'NAME') || ')';
    end case;
end $fn$ $ddl$, public_functions[i], branches, quote_ident(current_schema()));
    end loop;
end $$;
-- +goose StatementEnd

-- +goose StatementBegin
create function _inbox_of(consumer text) returns _inbox
language plpgsql stable set search_path from current as $$
declare
    found_inbox _inbox;
begin
    select * into found_inbox from _inbox i where i.consumer = _inbox_of.consumer;
    if not found then
        raise exception 'there is no inbox of %', coalesce(quote_literal(consumer), 'null')
        using errcode = '42P01', hint = format('create it with: select %s.create_inbox(%s)', quote_ident(current_schema()), coalesce(quote_literal(consumer), 'NAME'));
    end if;
    return found_inbox;
end $$;
-- +goose StatementEnd

-- set_inbox changes how long ids are known; a longer time holds for what comes after
-- it. Errors: 42P01, 22023.
-- +goose StatementBegin
create function set_inbox(consumer text, keep interval) returns void
language plpgsql set search_path from current as $$
declare
    i _inbox := _inbox_of(consumer);
begin
    perform _check_keep(keep);
    update _inbox x set keep = set_inbox.keep where x.id = i.id;
end $$;
-- +goose StatementEnd

-- drop_inbox removes an inbox, with what it holds. Error: 42P01.
-- +goose StatementBegin
create function drop_inbox(consumer text) returns void
language plpgsql set search_path from current as $$
declare
    i    _inbox := _inbox_of(consumer);
    made record;
begin
    perform pg_advisory_xact_lock('_inbox'::regclass::oid::int, 0);
    for made in select p.oid::regprocedure as name from pg_proc p
                 where p.pronamespace = quote_ident(current_schema())::regnamespace and p.proname like format('\_\_inbox.%s.%%', i.id) loop
        execute format('drop function %s', made.name);
    end loop;
    for made in select c.oid::regclass as name, c.relkind from pg_class c
                 where c.relnamespace = quote_ident(current_schema())::regnamespace and c.relname like format('\_\_inbox.%s.%%', i.id) and c.relkind in ('r', 'S')
                 order by c.relkind desc loop -- tables first: their defaults use sequences
        execute format('drop %s %s', case made.relkind when 'r' then 'table' else 'sequence' end, made.name);
    end loop;
    delete from _inbox x where x.id = i.id;
    perform _dispatch_inboxes();
end $$;
-- +goose StatementEnd

-- grant_consumer lets a role use one inbox and nothing else. Error: 42P01.
-- +goose StatementBegin
create function grant_consumer(consumer text, role name) returns void
language plpgsql set search_path from current as $$
declare
    i    _inbox := _inbox_of(consumer);
    word text;
begin
    execute format('grant usage on schema %I to %I', current_schema(), role);
    foreach word in array array['first(text)', 'first_of(text[])', 'in_order(text, text, text, jsonb, bytea, interval)', 'due(int)', 'tick(boolean)'] loop
        execute format('grant execute on function %s(%s to %I', _inbox_name(i.id, split_part(word, '(', 1)), split_part(word, '(', 2), role);
    end loop;
end $$;
-- +goose StatementEnd

-- inboxes describes every inbox: what it takes on disk, and how many messages it holds
-- back now.
-- +goose StatementBegin
create function inboxes() returns table (consumer text, keep interval, bytes bigint, held bigint, next_gap timestamptz)
language plpgsql volatile set search_path from current
set enable_seqscan = off set enable_bitmapscan = off as $$
declare
    i    _inbox;
    part record;
begin
    for i in select * from _inbox x order by x.consumer collate "C" loop
        consumer := i.consumer;
        keep := i.keep;
        bytes := 0;
        held := 0;
        next_gap := null;
        for slot in 0 .. 3 loop
            execute format('select count(*) as held, min(due) as due from %s where due >= to_timestamp($1 / 1000.0)', _inbox_name(i.id, 'held.' || slot))
               into part using pg_sequence_last_value(_inbox_name(i.id, 'low')::regclass);
            held := held + part.held;
            next_gap := least(next_gap, part.due);
            bytes := bytes + pg_total_relation_size(_inbox_name(i.id, 'seen.' || slot)) + pg_total_relation_size(_inbox_name(i.id, 'held.' || slot))
                     + pg_total_relation_size(_inbox_name(i.id, 'heads.' || slot));
        end loop;
        return next;
    end loop;
end $$;
-- +goose StatementEnd

select _dispatch_inboxes();

-- +goose StatementBegin
do $$
declare
    made regprocedure;
begin
    for made in select p.oid from pg_proc p
                 where p.pronamespace = quote_ident(current_schema())::regnamespace
                   and p.proname = any ('{_refuse_inboxed,_check_keep,_inbox_functions,_wants_read_committed,_inbox_name,_define_inbox,create_inbox,_dispatch_inboxes,_inbox_of,set_inbox,drop_inbox,grant_consumer,inboxes}') loop
        execute format('revoke execute on function %s from public', made);
    end loop;
end $$;
-- +goose StatementEnd

-- +goose Down
select 'Penstock does not migrate down: drop the schema instead';
