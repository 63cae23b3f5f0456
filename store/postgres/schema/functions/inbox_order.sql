-- The messages of a key in order: those that came early are held back.

insert into _template (kind, name, body) select 'inbox', 'order', $$

-- {in_order} is inbox_in_order. The key's lock comes first, and the register after it: its holder
-- sees all that others of the key have done.
create or replace function {in_order}(in_key text, in_id text, in_previous text, in_headers jsonb, in_payload bytea, wait interval) returns setof {schema}.inboxed
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set jit = off set plan_cache_mode = force_generic_plan as $fn$ declare
    ring    bigint;
    turn    bigint;
    missing text;
    due_at  timestamptz;
    one     {schema}.inboxed;
begin
    if (in_id <> '' and octet_length(in_id) <= 256 and octet_length(in_payload) <= 67108864 and (in_headers is null or jsonb_typeof(in_headers) = 'object')
        and (in_key is null or octet_length(in_key) <= 1024) and (in_previous is null or octet_length(in_previous) <= 256 and in_previous <> in_id)) is not true then
        perform {schema}._refuse_inboxed(in_id, in_previous, in_key, in_headers, in_payload);
    end if;
    if wait is null or wait < interval '0' or wait > (select keep / 2 from {schema}._inbox where id = {id}) then
        raise exception 'wait is %, expected nothing to half the time for which the inbox keeps messages', coalesce(wait::text, 'null')
        using errcode = '22023', hint = 'for example interval ''30 s''; set_inbox changes how long the inbox keeps messages';
    end if;
    perform {schema}._read_committed();
    if in_key <> '' then perform pg_advisory_xact_lock(hashtextextended(in_key, {key_seed})); end if;
    if {is_due} then perform {maintain}(false); end if;
    ring := {enter}();
    turn := ring / 2;
    if not {see}(in_id, ring) then return; end if;
    if in_key <> '' and in_previous <> '' then
        if not {received}(in_previous, ring) then
            if {reported}(in_previous, ring) then
                missing := in_previous;
            else
                due_at := clock_timestamp() + wait;
            end if;
        elsif {held_after}(in_previous, ring) is not null then
            due_at := clock_timestamp() + wait;
        end if;
    end if;
    if due_at is not null then
        if pg_sequence_last_value({holds}) = 0 then perform setval({holds}, 1); end if;
        perform {enter_holding}();
        due_at := greatest(due_at, to_timestamp(pg_sequence_last_value({candidate}) / 1000.0)); -- this one first
        due_at := greatest(due_at, to_timestamp(pg_sequence_last_value({low}) / 1000.0));
        for t in turn .. turn loop
            {each: insert into {held} (id, previous, key, due, headers, payload) values (in_id, in_previous, in_key, due_at, in_headers, in_payload);}
        end loop;
        return;
    end if;
    one := row(in_id, in_key, in_headers, in_payload, missing is not null, missing, false);
    if in_key <> '' then
        one.late := {reported}(in_id, ring);
        return query select * from {release}(one, in_previous, ring);
    else
        return next one;
    end if;
end $fn$;

-- {release} hands over a message, then what was held for it, and what was held for that. Gaps part a key; known are the last messages of its
-- parts, and the last of them is its head. A message that follows another one is late, and leaves the head where it is. So does a message
-- behind a gap if its id, derived by an outbox, shows that it was written before the head. Of other ids only the messages between two
-- parts show which one is older, should they come. The part that a reported message follows goes before the message handed over in its place.
-- See internal/inorder.
create or replace function {release}(one {schema}.inboxed, in_previous text, ring bigint) returns setof {schema}.inboxed
language plpgsql volatile as $fn$ declare
    in_key   constant text := one.key;
    made     constant text := '^([^-]+)-([0-9]+)-([0-9a-z]{10})$|^([0-9A-Za-z]{4})~([0-9A-Za-z]{9})([0-9A-Za-z]+)$'; -- see internal/messageid
    previous text := coalesce(in_previous, '');
    step     {schema}.inboxed[] := array[one];
    part     {schema}.inboxed[];
    ends     text[];
    parts    text[];
    was      text[];
    head     text[] collate "C";
    this     text[] collate "C";
    instead  text;
    at       int;
begin
    for t in reverse ring / 2 .. ring / 2 - 2 - ring % 2 loop
        {each: select array_append(h.behind, h.id) into parts from {heads} h where h.key = in_key order by h.n desc limit 1;}
        exit when parts is not null;
    end loop;
    was := parts;
    loop
        ends := '{}';
        foreach one in array step loop
            if previous is null then -- it was held
                previous := one.missing;
                one.missing := null;
            end if;
            at := array_position(parts, previous);
            if one.late then
                instead := null;
                for t in reverse ring / 2 .. ring / 2 - 2 - ring % 2 loop
                    exit when at is null or instead is not null;
                    {each: select coalesce(g.next, one.message_id) into instead from {gaps} g where g.id = one.message_id;}
                end loop;
                if instead <> one.message_id and cardinality(parts) > 1 then
                    parts := parts[1:at - 1] || parts[at + 1:];
                elsif instead is not null then
                    parts[at] := instead;
                end if;
            elsif parts is null or previous = '' or at = cardinality(parts) then
                parts := parts[1:cardinality(parts) - 1] || one.message_id;
            elsif one.gap then
                head := (select array[coalesce(m[1], m[4]), coalesce(m[2], m[6]), coalesce(m[3], m[5])] from regexp_match(parts[cardinality(parts)], made) m);
                this := (select array[coalesce(m[1], m[4]), coalesce(m[2], m[6]), coalesce(m[3], m[5])] from regexp_match(one.message_id, made) m);
                if this[1] = head[1] and (length(this[2]), this[2]) < (length(head[2]), head[2]) and this[3] <= head[3] then
                    one.late := true;
                elsif this[1] = head[1] and (length(this[2]), this[2]) > (length(head[2]), head[2]) and this[3] >= head[3] then
                    parts[cardinality(parts)] := one.message_id;
                else
                    parts := parts[cardinality(parts) - 6:] || one.message_id; -- eight at most
                end if;
            else
                one.late := true;
                if at is not null then parts[at] := one.message_id; end if;
            end if;
            previous := null;
            ends := ends || one.message_id;
            return next one;
        end loop;
        exit when cardinality(ends) = 0 or pg_sequence_last_value({holds}) is distinct from 1;
        step := '{}';
        for t in ring / 2 - 2 - ring % 2 .. ring / 2 loop
            {each: with d as (delete from {held} h where h.previous = any (ends) returning h.*)
                   select array_agg(row(d.id, d.key, d.headers, d.payload, false, d.previous, {reported}(d.id, ring))::{schema}.inboxed order by d.due) into part from d;}
            step := step || part;
        end loop;
    end loop;
    if parts is distinct from was then
        for t in ring / 2 .. ring / 2 loop
            {each: insert into {heads} (key, id, behind) values (in_key, parts[cardinality(parts)], nullif(parts[1:cardinality(parts) - 1], '{}'));}
        end loop;
    end if;
end $fn$;

-- {due} is inbox_due: of up to n keys whose wait is over, what is held from the missing
-- message on, but for the keys in passing_over. A key that another transaction has is left to
-- that one, or to the next call.
create or replace function {due}(n int, passing_over text[]) returns setof {schema}.inboxed
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set jit = off set plan_cache_mode = force_generic_plan as $fn$ declare
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
    perform {schema}._read_committed();
    if {is_due} then perform {maintain}(false); end if;
    if pg_sequence_last_value({holds}) = 0 then return; end if;
    perform {advance}();
    ring := {enter}();
    low := to_timestamp(pg_sequence_last_value({low}) / 1000.0);
    for t in ring / 2 - 2 - ring % 2 .. ring / 2 loop
        {each: select coalesce(array_agg(h.id order by h.due), '{}') as ids, coalesce(array_agg(h.key order by h.due), '{}') as keys into early
                 from (select h.id, h.key, h.due from {held} h where h.due >= low and h.due <= now and h.key <> all (coalesce(passing_over, '{}')) order by h.due limit n * 4 + 64) h;}
        ids := ids || early.ids;
        keys := keys || early.keys;
    end loop;
    for i in 1 .. cardinality(ids) loop
        exit when todo = 0;
        continue when not pg_try_advisory_xact_lock(hashtextextended(keys[i], {key_seed}));
        ring := {enter}(); -- in this order, as in {in_order}: heads of a key are in the turns in which they came
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
            if steps & (steps - 1) = 0 then mark := root; end if;
        end loop;
        for t in ring / 2 - 2 - ring % 2 .. ring / 2 loop
            {each: delete from {held} h where h.id = root
                   returning h.id, h.key, h.headers, h.payload, false, null, false into one;}
            exit when one.message_id is not null;
        end loop;
        continue when one.message_id is null; -- ids of one key that were used for another
        one.late := {reported}(root, ring);
        if not {received}(prior, ring) then
            one.gap := true;
            one.missing := prior;
            for t in ring / 2 .. ring / 2 loop
                {each: insert into {gaps} as g (id, key, next) values (prior, one.key, one.message_id)
                           on conflict (id) do update set next = excluded.next where g.next is null;}
            end loop;
        end if;
        return query select * from {release}(one, prior, ring);
        todo := todo - 1;
    end loop;
end $fn$;

-- {reported} returns whether a message was reported missing, or discarded.
create or replace function {reported}(in_id text, ring bigint) returns boolean
language plpgsql volatile as $fn$ begin
    for t in reverse ring / 2 .. ring / 2 - 2 - ring % 2 loop
        {each: perform from {gaps} g where g.id = in_id;}
        if found then return true; end if;
    end loop;
    return false;
end $fn$;

-- {held_after} is the predecessor that a held message waits for, null if the id is not held.
create or replace function {held_after}(in_id text, ring bigint) returns text
language plpgsql volatile as $fn$ declare found_id text;
begin
    for t in reverse ring / 2 .. ring / 2 - 2 - ring % 2 loop
        {each: select h.previous into found_id from {held} h where h.id = in_id;}
        exit when found_id is not null;
    end loop;
    return found_id;
end $fn$;

$$;
