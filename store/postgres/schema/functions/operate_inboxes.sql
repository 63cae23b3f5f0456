-- Functions that people call for inboxes: see the held messages and the missing ones, and the gaps that were
-- reported; let go of held messages, or discard them.

insert into _template (kind, name, body) select 'inbox', 'operator', $$

-- {status} is one row of inboxes(). It counts by reading the held and the reported messages.
create or replace function {status}(out bytes bigint, out segment_bytes bigint[], out current_segment int, out held bigint, out held_bytes bigint, out next_gap timestamptz, out gaps bigint)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set jit = off as $fn$ declare
    ring constant bigint := pg_sequence_last_value({ring});
    low  constant timestamptz := to_timestamp(pg_sequence_last_value({low}) / 1000.0);
    part record;
begin
    bytes := 0;
    segment_bytes := '{}';
    current_segment := ring / 2 % 4;
    held := 0;
    held_bytes := 0;
    gaps := 0;
    for t in 0 .. 3 loop
        {each: select pg_total_relation_size({seen_name}::regclass) + pg_total_relation_size({held_name}::regclass) + pg_total_relation_size({heads_name}::regclass)
                    + pg_total_relation_size({gaps_name}::regclass) as bytes into part;}
        segment_bytes := segment_bytes || part.bytes;
        bytes := bytes + part.bytes;
    end loop;
    for t in ring / 2 - 2 - ring % 2 .. ring / 2 loop
        {each: select count(*) as held, coalesce(sum(octet_length(h.payload)), 0) as bytes, min(h.due) as due into part from {held} h where h.due >= low;}
        held := held + part.held;
        held_bytes := held_bytes + part.bytes;
        next_gap := least(next_gap, part.due);
        {each: select count(*) as gaps into part from {gaps} g;}
        gaps := gaps + part.gaps;
    end loop;
end $fn$;

-- {list_held} is inbox_held.
create or replace function {list_held}(of_key text, of_previous text, of_id text, n int) returns setof {schema}.held_message
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set jit = off as $fn$ declare
    ring constant bigint := pg_sequence_last_value({ring});
    low  constant timestamptz := to_timestamp(pg_sequence_last_value({low}) / 1000.0);
    all_of {schema}.held_message[] := '{}';
    part   {schema}.held_message[];
begin
    perform {schema}._check_rows(n);
    for t in ring / 2 - 2 - ring % 2 .. ring / 2 loop
        {each: select coalesce(array_agg(row(h.id, h.key, h.previous, null, h.at, h.due, h.headers, octet_length(h.payload),
                                             case when of_id is not null then h.payload end)::{schema}.held_message), '{}') into part
                 from (select h.* from {held} h
                        where h.due >= low and (of_key is null or h.key = of_key) and (of_previous is null or h.previous = of_previous) and (of_id is null or h.id = of_id)
                        order by h.due limit n) h;}
        all_of := all_of || part;
    end loop;
    return query select h.message_id, h.key, h.previous_id, {held_after}(h.previous_id, ring) is not null, h.held_at, h.due, h.headers, h.payload_bytes, h.payload
                   from (select * from unnest(all_of) order by due limit n) h order by h.due;
end $fn$;

-- {list_gaps} is inbox_gaps.
create or replace function {list_gaps}(n int) returns setof {schema}.inbox_gap
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set jit = off as $fn$ declare
    ring constant bigint := pg_sequence_last_value({ring});
    all_of {schema}.inbox_gap[] := '{}';
    part   {schema}.inbox_gap[];
begin
    perform {schema}._check_rows(n);
    for t in reverse ring / 2 .. ring / 2 - 2 - ring % 2 loop
        {each: select coalesce(array_agg(row(g.id, g.key, g.next, g.at, g.discarded, null)::{schema}.inbox_gap), '{}') into part
                 from (select g.* from {gaps} g order by g.at desc limit n) g;}
        all_of := all_of || part;
    end loop;
    return query select g.missing, g.key, g.followed_by, g.reported_at, g.discarded, {received}(g.missing, ring)
                   from (select * from unnest(all_of) order by reported_at desc limit n) g order by g.reported_at desc;
end $fn$;

-- {let_go} is inbox_release: it makes messages due, in the order in which they would be,
-- under the same rule as those that are held anew. One that is being handed over just
-- now is left to that.
create or replace function {let_go}(of_key text, of_previous text, of_id text) returns bigint
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set jit = off as $fn$ declare
    ring  bigint;
    low   timestamptz;
    base  timestamptz;
    let   bigint := 0;
    part  bigint;
begin
    perform {schema}._read_committed();
    if pg_sequence_last_value({holds}) = 0 then return 0; end if;
    ring := {enter}();
    perform {enter_holding}();
    low := to_timestamp(pg_sequence_last_value({low}) / 1000.0);
    base := greatest(clock_timestamp(), to_timestamp(pg_sequence_last_value({candidate}) / 1000.0), low);
    for t in ring / 2 - 2 - ring % 2 .. ring / 2 loop
        {each: with chosen as (
                   select h.id, row_number() over (order by h.due) as n
                     from (select h.id, h.due from {held} h
                            where h.due >= low and (of_key is null or h.key = of_key) and (of_previous is null or h.previous = of_previous) and (of_id is null or h.id = of_id)
                              for update skip locked) h),
               due as (update {held} h set due = least(h.due, base + (let + c.n) * interval '1 microsecond') from chosen c where h.id = c.id returning h.id)
               select count(*) into part from due;}
        let := let + part;
    end loop;
    return let;
end $fn$;

-- {discard} is inbox_discard: as if the messages had never come. Under the key's lock, so that no
-- transaction is handing them over or about to wait for them.
create or replace function {discard}(ids text[]) returns setof text
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set jit = off as $fn$ declare
    ring bigint;
    one  text;
    k    text;
    gone text;
begin
    perform {schema}._read_committed();
    foreach one in array coalesce(ids, '{}') loop
        k := (select h.key from {list_held}(null, null, one, 1) h);
        continue when k is null;
        perform pg_advisory_xact_lock(hashtextextended(k, {key_seed}));
        ring := {enter}();
        gone := null;
        for t in ring / 2 - 2 - ring % 2 .. ring / 2 loop
            {each: delete from {held} h where h.id = one returning h.id into gone;}
            exit when gone is not null;
        end loop;
        continue when gone is null; -- handed over meanwhile
        for t in ring / 2 - 2 - ring % 2 .. ring / 2 loop
            {each: delete from {seen} s where s.id = one;}
        end loop;
        for t in ring / 2 .. ring / 2 loop
            {each: insert into {gaps} (id, key, discarded) values (one, k, true) on conflict (id) do update set at = excluded.at, discarded = true;}
        end loop;
        perform {let_go}(null, one, null);
        return next one;
    end loop;
end $fn$;

$$;

-- _check_rows raises an error for a number of rows that is too large or too small.
create or replace function _check_rows(n int) returns void
language plpgsql set search_path from current as $$ begin
    if (n between 1 and 10000) is not true then
        raise exception 'n is %, expected 1 to 10000', coalesce(n::text, 'null') using errcode = '22023', hint = 'it is the most rows that are returned';
    end if;
end $$;

create or replace function inboxes() returns table (consumer text, keep interval, bytes bigint, held bigint, held_bytes bigint, next_gap timestamptz, gaps bigint, segment_bytes bigint[], current_segment int)
language plpgsql volatile set search_path from current as $$ declare i _inbox;
begin
    for i in select * from _inbox x
              where has_function_privilege(to_regprocedure(_inbox_name(x.id, 'status') || '()'), 'execute') order by x.consumer collate "C" loop
        consumer := i.consumer;
        keep := i.keep;
        execute format('select bytes, held, held_bytes, next_gap, gaps, segment_bytes, current_segment from %s()', _inbox_name(i.id, 'status'))
           into bytes, held, held_bytes, next_gap, gaps, segment_bytes, current_segment;
        return next;
    end loop;
end $$;

comment on function inboxes is 'Describes every inbox, or those that the role looks after: its bytes on disk, the messages that it holds back, and its gaps. next_gap is when the first of them is handed over in any case.';

create or replace function grant_inbox_operator(consumer text, role name) returns void
language plpgsql set search_path from current as $$ declare i _inbox := _inbox_of(consumer);
begin
    execute format('grant select on table _migration, _inbox to %1$I; grant execute on function inboxes() to %1$I', role);
    perform _grant_own('_inbox.' || i.id, '{status,list_held,list_gaps,let_go,discard,maintain}', role);
end $$;

comment on function grant_inbox_operator is 'Lets a role look after one inbox. It sees the inbox''s sizes, held messages with their payloads, and gaps; it can release and discard held messages, and do maintenance. It sees the names of other inboxes. Error: 42P01.';
