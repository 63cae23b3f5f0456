-- The inbox of billing. As it stands in the database, with the comments of store/postgres/schema; TestGolden compares it, and
-- -update writes it.

create table penstock."__inbox.1.gaps.0" (
    id text collate "C" not null,
    key text not null,
    next text collate "C",
    at timestamp with time zone not null default clock_timestamp(),
    discarded boolean not null default false,
    PRIMARY KEY (id)
) with (autovacuum_enabled=false);

create table penstock."__inbox.1.gaps.1" (
    id text collate "C" not null,
    key text not null,
    next text collate "C",
    at timestamp with time zone not null default clock_timestamp(),
    discarded boolean not null default false,
    PRIMARY KEY (id)
) with (autovacuum_enabled=false);

create table penstock."__inbox.1.gaps.2" (
    id text collate "C" not null,
    key text not null,
    next text collate "C",
    at timestamp with time zone not null default clock_timestamp(),
    discarded boolean not null default false,
    PRIMARY KEY (id)
) with (autovacuum_enabled=false);

create table penstock."__inbox.1.gaps.3" (
    id text collate "C" not null,
    key text not null,
    next text collate "C",
    at timestamp with time zone not null default clock_timestamp(),
    discarded boolean not null default false,
    PRIMARY KEY (id)
) with (autovacuum_enabled=false);

create table penstock."__inbox.1.heads.0" (
    key text collate "C" not null,
    n bigint not null default nextval('penstock."__inbox.1.n"'::regclass),
    id text collate "C" not null,
    behind text[] collate "C",
    PRIMARY KEY (key, n)
) with (autovacuum_enabled=false);

create table penstock."__inbox.1.heads.1" (
    key text collate "C" not null,
    n bigint not null default nextval('penstock."__inbox.1.n"'::regclass),
    id text collate "C" not null,
    behind text[] collate "C",
    PRIMARY KEY (key, n)
) with (autovacuum_enabled=false);

create table penstock."__inbox.1.heads.2" (
    key text collate "C" not null,
    n bigint not null default nextval('penstock."__inbox.1.n"'::regclass),
    id text collate "C" not null,
    behind text[] collate "C",
    PRIMARY KEY (key, n)
) with (autovacuum_enabled=false);

create table penstock."__inbox.1.heads.3" (
    key text collate "C" not null,
    n bigint not null default nextval('penstock."__inbox.1.n"'::regclass),
    id text collate "C" not null,
    behind text[] collate "C",
    PRIMARY KEY (key, n)
) with (autovacuum_enabled=false);

create table penstock."__inbox.1.held.0" (
    id text collate "C" not null,
    previous text collate "C" not null,
    key text not null,
    at timestamp with time zone not null default clock_timestamp(),
    due timestamp with time zone not null,
    headers jsonb,
    payload bytea not null,
    PRIMARY KEY (id)
);
CREATE INDEX "__inbox.1.held.0_due_idx" ON penstock."__inbox.1.held.0" USING btree (due);
CREATE INDEX "__inbox.1.held.0_previous_idx" ON penstock."__inbox.1.held.0" USING btree (previous);

create table penstock."__inbox.1.held.1" (
    id text collate "C" not null,
    previous text collate "C" not null,
    key text not null,
    at timestamp with time zone not null default clock_timestamp(),
    due timestamp with time zone not null,
    headers jsonb,
    payload bytea not null,
    PRIMARY KEY (id)
);
CREATE INDEX "__inbox.1.held.1_due_idx" ON penstock."__inbox.1.held.1" USING btree (due);
CREATE INDEX "__inbox.1.held.1_previous_idx" ON penstock."__inbox.1.held.1" USING btree (previous);

create table penstock."__inbox.1.held.2" (
    id text collate "C" not null,
    previous text collate "C" not null,
    key text not null,
    at timestamp with time zone not null default clock_timestamp(),
    due timestamp with time zone not null,
    headers jsonb,
    payload bytea not null,
    PRIMARY KEY (id)
);
CREATE INDEX "__inbox.1.held.2_due_idx" ON penstock."__inbox.1.held.2" USING btree (due);
CREATE INDEX "__inbox.1.held.2_previous_idx" ON penstock."__inbox.1.held.2" USING btree (previous);

create table penstock."__inbox.1.held.3" (
    id text collate "C" not null,
    previous text collate "C" not null,
    key text not null,
    at timestamp with time zone not null default clock_timestamp(),
    due timestamp with time zone not null,
    headers jsonb,
    payload bytea not null,
    PRIMARY KEY (id)
);
CREATE INDEX "__inbox.1.held.3_due_idx" ON penstock."__inbox.1.held.3" USING btree (due);
CREATE INDEX "__inbox.1.held.3_previous_idx" ON penstock."__inbox.1.held.3" USING btree (previous);

create table penstock."__inbox.1.seen.0" (
    id text collate "C" not null,
    PRIMARY KEY (id)
) with (autovacuum_enabled=false);

create table penstock."__inbox.1.seen.1" (
    id text collate "C" not null,
    PRIMARY KEY (id)
) with (autovacuum_enabled=false);

create table penstock."__inbox.1.seen.2" (
    id text collate "C" not null,
    PRIMARY KEY (id)
) with (autovacuum_enabled=false);

create table penstock."__inbox.1.seen.3" (
    id text collate "C" not null,
    PRIMARY KEY (id)
) with (autovacuum_enabled=false);

create sequence penstock."__inbox.1.candidate" minvalue 0; -- holds 0
create sequence penstock."__inbox.1.epoch" minvalue 0; -- holds 1
create sequence penstock."__inbox.1.holds" minvalue 0; -- holds 0
create sequence penstock."__inbox.1.low" minvalue 0; -- holds a time
create sequence penstock."__inbox.1.n";
create sequence penstock."__inbox.1.next" minvalue 0; -- holds a time
create sequence penstock."__inbox.1.ring" minvalue 0; -- holds 8
create sequence penstock."__inbox.1.since" minvalue 0; -- holds a time

-- enter returns the ring's register. From then on until its end the transaction holds the turn's lock, in shared form, and a turn
-- settles only when no transaction holds the lock of the one before.
CREATE OR REPLACE FUNCTION penstock."__inbox.1.enter"()
 RETURNS bigint
 LANGUAGE plpgsql
AS $function$ declare
    ring bigint := pg_sequence_last_value('penstock."__inbox.1.ring"'::regclass);
    now  bigint;
begin
    loop
        perform pg_advisory_xact_lock_shared(1885695598, 1 * 4 + (ring / 2 % 4)::int);
        now := pg_sequence_last_value('penstock."__inbox.1.ring"'::regclass);
        exit when now / 2 is not distinct from ring / 2;
        ring := now;
    end loop;
    if now is null then
        raise exception 'the sequence % has no value', 'penstock."__inbox.1.ring"'::regclass using errcode = '55000', hint = 'it was restarted by hand: give it back the value that it had, by setval';
    end if;
    return now;
end $function$;

-- see notes an id and returns whether it is new. It is written in the turns that decide, and the unique index makes the
-- transaction that comes second wait for the first. Ids of the turns before them were committed long ago: there it is enough to
-- look, if the statement's snapshot is of now.
CREATE OR REPLACE FUNCTION penstock."__inbox.1.see"(in_id text, ring bigint)
 RETURNS boolean
 LANGUAGE plpgsql
AS $function$ declare
    turn    constant bigint := ring / 2;
    moving  constant bigint := ring % 2;
    oldest  constant bigint := turn - 2 - moving;
    decides constant bigint := case when current_setting('transaction_isolation') = 'read committed' then turn - moving else oldest end;
begin
    for t in oldest .. decides - 1 loop
        case t % 4
        when 0 then perform from penstock."__inbox.1.seen.0" s where s.id = in_id;
        when 1 then perform from penstock."__inbox.1.seen.1" s where s.id = in_id;
        when 2 then perform from penstock."__inbox.1.seen.2" s where s.id = in_id;
        when 3 then perform from penstock."__inbox.1.seen.3" s where s.id = in_id;
        end case;
        if found then return false; end if;
    end loop;
    for t in decides .. turn loop
        case t % 4
        when 0 then insert into penstock."__inbox.1.seen.0" (id) values (in_id) on conflict do nothing;
        when 1 then insert into penstock."__inbox.1.seen.1" (id) values (in_id) on conflict do nothing;
        when 2 then insert into penstock."__inbox.1.seen.2" (id) values (in_id) on conflict do nothing;
        when 3 then insert into penstock."__inbox.1.seen.3" (id) values (in_id) on conflict do nothing;
        end case;
        if not found then return false; end if;
    end loop;
    return true;
end $function$;

-- received returns whether an id was received.
CREATE OR REPLACE FUNCTION penstock."__inbox.1.received"(in_id text, ring bigint)
 RETURNS boolean
 LANGUAGE plpgsql
AS $function$ begin
    for t in reverse ring / 2 .. ring / 2 - 2 - ring % 2 loop
        case t % 4
        when 0 then perform from penstock."__inbox.1.seen.0" s where s.id = in_id;
        when 1 then perform from penstock."__inbox.1.seen.1" s where s.id = in_id;
        when 2 then perform from penstock."__inbox.1.seen.2" s where s.id = in_id;
        when 3 then perform from penstock."__inbox.1.seen.3" s where s.id = in_id;
        end case;
        if found then return true; end if;
    end loop;
    return false;
end $function$;

-- first is inbox for this consumer.
CREATE OR REPLACE FUNCTION penstock."__inbox.1.first"(message_id text)
 RETURNS boolean
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET enable_seqscan TO 'off'
 SET enable_bitmapscan TO 'off'
 SET jit TO 'off'
 SET plan_cache_mode TO 'force_generic_plan'
AS $function$ begin
    if (message_id <> '' and octet_length(message_id) <= 256) is not true then
        perform penstock._refuse_inboxed(message_id, null, null, null, '');
    end if;
    if abs(extract(epoch from clock_timestamp()) * 1000 - pg_sequence_last_value('penstock."__inbox.1.next"'::regclass) + 5000) > 5000 then perform penstock."__inbox.1.maintain"(false); end if;
    return penstock."__inbox.1.see"(message_id, penstock."__inbox.1.enter"());
end $function$;

-- first_of is inbox_many. Ids are written in one order, so that two calls do not wait for each other.
CREATE OR REPLACE FUNCTION penstock."__inbox.1.first_of"(ids text[])
 RETURNS SETOF text
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET enable_seqscan TO 'off'
 SET enable_bitmapscan TO 'off'
 SET jit TO 'off'
 SET plan_cache_mode TO 'force_generic_plan'
AS $function$ declare
    ring    bigint;
    turn    bigint;
    oldest  bigint;
    decides bigint;
    bad     text;
    fresh   text[];
begin
    for bad in select i from unnest(ids) i where (i <> '' and octet_length(i) <= 256) is not true loop
        perform penstock._refuse_inboxed(bad, null, null, null, '');
    end loop;
    if abs(extract(epoch from clock_timestamp()) * 1000 - pg_sequence_last_value('penstock."__inbox.1.next"'::regclass) + 5000) > 5000 then perform penstock."__inbox.1.maintain"(false); end if;
    ring := penstock."__inbox.1.enter"();
    turn := ring / 2;
    oldest := turn - 2 - ring % 2;
    decides := case when current_setting('transaction_isolation') = 'read committed' then turn - ring % 2 else oldest end;
    fresh := array(select distinct i collate "C" from unnest(ids) i order by 1);
    for t in oldest .. decides - 1 loop
        case t % 4
        when 0 then fresh := array(select i from unnest(fresh) with ordinality u(i, o)
                               where not exists (select from penstock."__inbox.1.seen.0" s where s.id = i) order by o);
        when 1 then fresh := array(select i from unnest(fresh) with ordinality u(i, o)
                               where not exists (select from penstock."__inbox.1.seen.1" s where s.id = i) order by o);
        when 2 then fresh := array(select i from unnest(fresh) with ordinality u(i, o)
                               where not exists (select from penstock."__inbox.1.seen.2" s where s.id = i) order by o);
        when 3 then fresh := array(select i from unnest(fresh) with ordinality u(i, o)
                               where not exists (select from penstock."__inbox.1.seen.3" s where s.id = i) order by o);
        end case;
    end loop;
    for t in decides .. turn loop
        case t % 4
        when 0 then with new as (insert into penstock."__inbox.1.seen.0" (id) select i from unnest(fresh) with ordinality u(i, o) order by o on conflict do nothing returning id)
               select coalesce(array_agg(id order by id), '{}') into fresh from new;
        when 1 then with new as (insert into penstock."__inbox.1.seen.1" (id) select i from unnest(fresh) with ordinality u(i, o) order by o on conflict do nothing returning id)
               select coalesce(array_agg(id order by id), '{}') into fresh from new;
        when 2 then with new as (insert into penstock."__inbox.1.seen.2" (id) select i from unnest(fresh) with ordinality u(i, o) order by o on conflict do nothing returning id)
               select coalesce(array_agg(id order by id), '{}') into fresh from new;
        when 3 then with new as (insert into penstock."__inbox.1.seen.3" (id) select i from unnest(fresh) with ordinality u(i, o) order by o on conflict do nothing returning id)
               select coalesce(array_agg(id order by id), '{}') into fresh from new;
        end case;
    end loop;
    return query select i from unnest(ids) with ordinality u(i, o) join unnest(fresh) f on f = i group by i order by min(o);
end $function$;

-- in_order is inbox_in_order. The key's lock comes first, and the register after it: its holder sees all that others of the key
-- have done.
CREATE OR REPLACE FUNCTION penstock."__inbox.1.in_order"(in_key text, in_id text, in_previous text, in_headers jsonb, in_payload bytea, wait interval)
 RETURNS SETOF penstock.inboxed
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET enable_seqscan TO 'off'
 SET enable_bitmapscan TO 'off'
 SET jit TO 'off'
 SET plan_cache_mode TO 'force_generic_plan'
AS $function$ declare
    ring    bigint;
    turn    bigint;
    missing text;
    due_at  timestamptz;
    one     penstock.inboxed;
begin
    if (in_id <> '' and octet_length(in_id) <= 256 and octet_length(in_payload) <= 67108864 and (in_headers is null or jsonb_typeof(in_headers) = 'object')
        and (in_key is null or octet_length(in_key) <= 1024) and (in_previous is null or octet_length(in_previous) <= 256 and in_previous <> in_id)) is not true then
        perform penstock._refuse_inboxed(in_id, in_previous, in_key, in_headers, in_payload);
    end if;
    if wait is null or wait < interval '0' or wait > (select keep / 2 from penstock._inbox where id = 1) then
        raise exception 'wait is %, expected nothing to half the time for which the inbox keeps messages', coalesce(wait::text, 'null')
        using errcode = '22023', hint = 'for example interval ''30 s''; set_inbox changes how long the inbox keeps messages';
    end if;
    perform penstock._read_committed();
    if in_key <> '' then perform pg_advisory_xact_lock(hashtextextended(in_key, 1099511627777)); end if;
    if abs(extract(epoch from clock_timestamp()) * 1000 - pg_sequence_last_value('penstock."__inbox.1.next"'::regclass) + 5000) > 5000 then perform penstock."__inbox.1.maintain"(false); end if;
    ring := penstock."__inbox.1.enter"();
    turn := ring / 2;
    if not penstock."__inbox.1.see"(in_id, ring) then return; end if;
    if in_key <> '' and in_previous <> '' then
        if not penstock."__inbox.1.received"(in_previous, ring) then
            if penstock."__inbox.1.reported"(in_previous, ring) then
                missing := in_previous;
            else
                due_at := clock_timestamp() + wait;
            end if;
        elsif penstock."__inbox.1.held_after"(in_previous, ring) is not null then
            due_at := clock_timestamp() + wait;
        end if;
    end if;
    if due_at is not null then
        if pg_sequence_last_value('penstock."__inbox.1.holds"'::regclass) = 0 then perform setval('penstock."__inbox.1.holds"'::regclass, 1); end if;
        perform penstock."__inbox.1.enter_holding"();
        due_at := greatest(due_at, to_timestamp(pg_sequence_last_value('penstock."__inbox.1.candidate"'::regclass) / 1000.0)); -- this one first
        due_at := greatest(due_at, to_timestamp(pg_sequence_last_value('penstock."__inbox.1.low"'::regclass) / 1000.0));
        for t in turn .. turn loop
            case t % 4
        when 0 then insert into penstock."__inbox.1.held.0" (id, previous, key, due, headers, payload) values (in_id, in_previous, in_key, due_at, in_headers, in_payload);
        when 1 then insert into penstock."__inbox.1.held.1" (id, previous, key, due, headers, payload) values (in_id, in_previous, in_key, due_at, in_headers, in_payload);
        when 2 then insert into penstock."__inbox.1.held.2" (id, previous, key, due, headers, payload) values (in_id, in_previous, in_key, due_at, in_headers, in_payload);
        when 3 then insert into penstock."__inbox.1.held.3" (id, previous, key, due, headers, payload) values (in_id, in_previous, in_key, due_at, in_headers, in_payload);
        end case;
        end loop;
        return;
    end if;
    one := row(in_id, in_key, in_headers, in_payload, missing is not null, missing, false);
    if in_key <> '' then
        one.late := penstock."__inbox.1.reported"(in_id, ring);
        return query select * from penstock."__inbox.1.release"(one, in_previous, ring);
    else
        return next one;
    end if;
end $function$;

-- release hands over a message, then what was held for it, and what was held for that. Gaps part a key; known are the last
-- messages of its parts, and the last of them is its head. A message that follows another one is late, and leaves the head where
-- it is. So does a message behind a gap if its id, derived by an outbox, shows that it was written before the head. Of other ids
-- only the messages between two parts show which one is older, should they come. The part that a reported message follows goes
-- before the message handed over in its place. See internal/inorder.
CREATE OR REPLACE FUNCTION penstock."__inbox.1.release"(one penstock.inboxed, in_previous text, ring bigint)
 RETURNS SETOF penstock.inboxed
 LANGUAGE plpgsql
AS $function$ declare
    in_key   constant text := one.key;
    made     constant text := '^([^-]+)-([0-9]+)-([0-9a-z]{10})$|^([0-9A-Za-z]{4})~([0-9A-Za-z]{9})([0-9A-Za-z]+)$'; -- see internal/messageid
    previous text := coalesce(in_previous, '');
    step     penstock.inboxed[] := array[one];
    part     penstock.inboxed[];
    ends     text[];
    parts    text[];
    was      text[];
    head     text[] collate "C";
    this     text[] collate "C";
    instead  text;
    at       int;
begin
    for t in reverse ring / 2 .. ring / 2 - 2 - ring % 2 loop
        case t % 4
        when 0 then select array_append(h.behind, h.id) into parts from penstock."__inbox.1.heads.0" h where h.key = in_key order by h.n desc limit 1;
        when 1 then select array_append(h.behind, h.id) into parts from penstock."__inbox.1.heads.1" h where h.key = in_key order by h.n desc limit 1;
        when 2 then select array_append(h.behind, h.id) into parts from penstock."__inbox.1.heads.2" h where h.key = in_key order by h.n desc limit 1;
        when 3 then select array_append(h.behind, h.id) into parts from penstock."__inbox.1.heads.3" h where h.key = in_key order by h.n desc limit 1;
        end case;
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
                    case t % 4
        when 0 then select coalesce(g.next, one.message_id) into instead from penstock."__inbox.1.gaps.0" g where g.id = one.message_id;
        when 1 then select coalesce(g.next, one.message_id) into instead from penstock."__inbox.1.gaps.1" g where g.id = one.message_id;
        when 2 then select coalesce(g.next, one.message_id) into instead from penstock."__inbox.1.gaps.2" g where g.id = one.message_id;
        when 3 then select coalesce(g.next, one.message_id) into instead from penstock."__inbox.1.gaps.3" g where g.id = one.message_id;
        end case;
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
        exit when cardinality(ends) = 0 or pg_sequence_last_value('penstock."__inbox.1.holds"'::regclass) is distinct from 1;
        step := '{}';
        for t in ring / 2 - 2 - ring % 2 .. ring / 2 loop
            case t % 4
        when 0 then with d as (delete from penstock."__inbox.1.held.0" h where h.previous = any (ends) returning h.*)
                   select array_agg(row(d.id, d.key, d.headers, d.payload, false, d.previous, penstock."__inbox.1.reported"(d.id, ring))::penstock.inboxed order by d.due) into part from d;
        when 1 then with d as (delete from penstock."__inbox.1.held.1" h where h.previous = any (ends) returning h.*)
                   select array_agg(row(d.id, d.key, d.headers, d.payload, false, d.previous, penstock."__inbox.1.reported"(d.id, ring))::penstock.inboxed order by d.due) into part from d;
        when 2 then with d as (delete from penstock."__inbox.1.held.2" h where h.previous = any (ends) returning h.*)
                   select array_agg(row(d.id, d.key, d.headers, d.payload, false, d.previous, penstock."__inbox.1.reported"(d.id, ring))::penstock.inboxed order by d.due) into part from d;
        when 3 then with d as (delete from penstock."__inbox.1.held.3" h where h.previous = any (ends) returning h.*)
                   select array_agg(row(d.id, d.key, d.headers, d.payload, false, d.previous, penstock."__inbox.1.reported"(d.id, ring))::penstock.inboxed order by d.due) into part from d;
        end case;
            step := step || part;
        end loop;
    end loop;
    if parts is distinct from was then
        for t in ring / 2 .. ring / 2 loop
            case t % 4
        when 0 then insert into penstock."__inbox.1.heads.0" (key, id, behind) values (in_key, parts[cardinality(parts)], nullif(parts[1:cardinality(parts) - 1], '{}'));
        when 1 then insert into penstock."__inbox.1.heads.1" (key, id, behind) values (in_key, parts[cardinality(parts)], nullif(parts[1:cardinality(parts) - 1], '{}'));
        when 2 then insert into penstock."__inbox.1.heads.2" (key, id, behind) values (in_key, parts[cardinality(parts)], nullif(parts[1:cardinality(parts) - 1], '{}'));
        when 3 then insert into penstock."__inbox.1.heads.3" (key, id, behind) values (in_key, parts[cardinality(parts)], nullif(parts[1:cardinality(parts) - 1], '{}'));
        end case;
        end loop;
    end if;
end $function$;

-- due is inbox_due: of up to n keys whose wait is over, what is held from the missing message on, but for the keys in
-- passing_over. A key that another transaction has is left to that one, or to the next call.
CREATE OR REPLACE FUNCTION penstock."__inbox.1.due"(n integer, passing_over text[])
 RETURNS SETOF penstock.inboxed
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET enable_seqscan TO 'off'
 SET enable_bitmapscan TO 'off'
 SET jit TO 'off'
 SET plan_cache_mode TO 'force_generic_plan'
AS $function$ declare
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
    one   penstock.inboxed;
begin
    if (n between 1 and 1000) is not true then
        raise exception 'n is %, expected 1 to 1000', coalesce(n::text, 'null') using errcode = '22023', hint = 'call inbox_due again for more';
    end if;
    perform penstock._read_committed();
    if abs(extract(epoch from clock_timestamp()) * 1000 - pg_sequence_last_value('penstock."__inbox.1.next"'::regclass) + 5000) > 5000 then perform penstock."__inbox.1.maintain"(false); end if;
    if pg_sequence_last_value('penstock."__inbox.1.holds"'::regclass) = 0 then return; end if;
    perform penstock."__inbox.1.advance"();
    ring := penstock."__inbox.1.enter"();
    low := to_timestamp(pg_sequence_last_value('penstock."__inbox.1.low"'::regclass) / 1000.0);
    for t in ring / 2 - 2 - ring % 2 .. ring / 2 loop
        case t % 4
        when 0 then select coalesce(array_agg(h.id order by h.due), '{}') as ids, coalesce(array_agg(h.key order by h.due), '{}') as keys into early
                 from (select h.id, h.key, h.due from penstock."__inbox.1.held.0" h where h.due >= low and h.due <= now and h.key <> all (coalesce(passing_over, '{}')) order by h.due limit n * 4 + 64) h;
        when 1 then select coalesce(array_agg(h.id order by h.due), '{}') as ids, coalesce(array_agg(h.key order by h.due), '{}') as keys into early
                 from (select h.id, h.key, h.due from penstock."__inbox.1.held.1" h where h.due >= low and h.due <= now and h.key <> all (coalesce(passing_over, '{}')) order by h.due limit n * 4 + 64) h;
        when 2 then select coalesce(array_agg(h.id order by h.due), '{}') as ids, coalesce(array_agg(h.key order by h.due), '{}') as keys into early
                 from (select h.id, h.key, h.due from penstock."__inbox.1.held.2" h where h.due >= low and h.due <= now and h.key <> all (coalesce(passing_over, '{}')) order by h.due limit n * 4 + 64) h;
        when 3 then select coalesce(array_agg(h.id order by h.due), '{}') as ids, coalesce(array_agg(h.key order by h.due), '{}') as keys into early
                 from (select h.id, h.key, h.due from penstock."__inbox.1.held.3" h where h.due >= low and h.due <= now and h.key <> all (coalesce(passing_over, '{}')) order by h.due limit n * 4 + 64) h;
        end case;
        ids := ids || early.ids;
        keys := keys || early.keys;
    end loop;
    for i in 1 .. cardinality(ids) loop
        exit when todo = 0;
        continue when not pg_try_advisory_xact_lock(hashtextextended(keys[i], 1099511627777));
        ring := penstock."__inbox.1.enter"(); -- in this order, as in penstock."__inbox.1.in_order": heads of a key are in the turns in which they came
        root := ids[i];
        prior := penstock."__inbox.1.held_after"(root, ring); -- in a statement that began under the lock
        continue when prior is null;       -- it was released meanwhile
        mark := root;
        steps := 0;
        loop -- up to what waits for nothing that is held; a circle, which no outbox makes, is cut somewhere
            above := penstock."__inbox.1.held_after"(prior, ring);
            exit when above is null or prior = mark;
            root := prior;
            prior := above;
            steps := steps + 1;
            if steps & (steps - 1) = 0 then mark := root; end if;
        end loop;
        for t in ring / 2 - 2 - ring % 2 .. ring / 2 loop
            case t % 4
        when 0 then delete from penstock."__inbox.1.held.0" h where h.id = root
                   returning h.id, h.key, h.headers, h.payload, false, null, false into one;
        when 1 then delete from penstock."__inbox.1.held.1" h where h.id = root
                   returning h.id, h.key, h.headers, h.payload, false, null, false into one;
        when 2 then delete from penstock."__inbox.1.held.2" h where h.id = root
                   returning h.id, h.key, h.headers, h.payload, false, null, false into one;
        when 3 then delete from penstock."__inbox.1.held.3" h where h.id = root
                   returning h.id, h.key, h.headers, h.payload, false, null, false into one;
        end case;
            exit when one.message_id is not null;
        end loop;
        continue when one.message_id is null; -- ids of one key that were used for another
        one.late := penstock."__inbox.1.reported"(root, ring);
        if not penstock."__inbox.1.received"(prior, ring) then
            one.gap := true;
            one.missing := prior;
            for t in ring / 2 .. ring / 2 loop
                case t % 4
        when 0 then insert into penstock."__inbox.1.gaps.0" as g (id, key, next) values (prior, one.key, one.message_id)
                           on conflict (id) do update set next = excluded.next where g.next is null;
        when 1 then insert into penstock."__inbox.1.gaps.1" as g (id, key, next) values (prior, one.key, one.message_id)
                           on conflict (id) do update set next = excluded.next where g.next is null;
        when 2 then insert into penstock."__inbox.1.gaps.2" as g (id, key, next) values (prior, one.key, one.message_id)
                           on conflict (id) do update set next = excluded.next where g.next is null;
        when 3 then insert into penstock."__inbox.1.gaps.3" as g (id, key, next) values (prior, one.key, one.message_id)
                           on conflict (id) do update set next = excluded.next where g.next is null;
        end case;
            end loop;
        end if;
        return query select * from penstock."__inbox.1.release"(one, prior, ring);
        todo := todo - 1;
    end loop;
end $function$;

-- reported returns whether a message was reported missing, or discarded.
CREATE OR REPLACE FUNCTION penstock."__inbox.1.reported"(in_id text, ring bigint)
 RETURNS boolean
 LANGUAGE plpgsql
AS $function$ begin
    for t in reverse ring / 2 .. ring / 2 - 2 - ring % 2 loop
        case t % 4
        when 0 then perform from penstock."__inbox.1.gaps.0" g where g.id = in_id;
        when 1 then perform from penstock."__inbox.1.gaps.1" g where g.id = in_id;
        when 2 then perform from penstock."__inbox.1.gaps.2" g where g.id = in_id;
        when 3 then perform from penstock."__inbox.1.gaps.3" g where g.id = in_id;
        end case;
        if found then return true; end if;
    end loop;
    return false;
end $function$;

-- held_after is the predecessor that a held message waits for, null if the id is not held.
CREATE OR REPLACE FUNCTION penstock."__inbox.1.held_after"(in_id text, ring bigint)
 RETURNS text
 LANGUAGE plpgsql
AS $function$ declare found_id text;
begin
    for t in reverse ring / 2 .. ring / 2 - 2 - ring % 2 loop
        case t % 4
        when 0 then select h.previous into found_id from penstock."__inbox.1.held.0" h where h.id = in_id;
        when 1 then select h.previous into found_id from penstock."__inbox.1.held.1" h where h.id = in_id;
        when 2 then select h.previous into found_id from penstock."__inbox.1.held.2" h where h.id = in_id;
        when 3 then select h.previous into found_id from penstock."__inbox.1.held.3" h where h.id = in_id;
        end case;
        exit when found_id is not null;
    end loop;
    return found_id;
end $function$;

-- maintain turns the ring: a call does it now and then, before it does anything else. It moves registers, which a rollback does
-- not undo, and truncates segments out of their window, which no call looks into any more.
CREATE OR REPLACE FUNCTION penstock."__inbox.1.maintain"(force boolean)
 RETURNS void
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET enable_seqscan TO 'off'
 SET enable_bitmapscan TO 'off'
 SET jit TO 'off'
AS $function$ declare
    now_ms  constant bigint := extract(epoch from clock_timestamp()) * 1000;
    half_ms bigint;
    ring    bigint;
    turn    bigint;
    low     timestamptz;
    spare   int;
    rest    boolean;
    wait_ms bigint;
begin
    if not force and not abs(extract(epoch from clock_timestamp()) * 1000 - pg_sequence_last_value('penstock."__inbox.1.next"'::regclass) + 5000) > 5000 or current_setting('transaction_isolation') <> 'read committed' then return; end if;
    if not pg_try_advisory_xact_lock(1885695598, -1) then return; end if;
    if pg_sequence_last_value('penstock."__inbox.1.since"'::regclass) > now_ms then -- the clock was ahead
        perform setval('penstock."__inbox.1.since"'::regclass, now_ms);
    end if;
    if pg_sequence_last_value('penstock."__inbox.1.low"'::regclass) > now_ms then -- what is held from now on is due before that
        perform setval('penstock."__inbox.1.low"'::regclass, 0);
    end if;
    if pg_sequence_last_value('penstock."__inbox.1.holds"'::regclass) = 1 then perform penstock."__inbox.1.advance"(); end if;
    half_ms := (select extract(epoch from keep) * 500 from penstock._inbox where id = 1);
    wait_ms := least(half_ms / 8, 10000);
    ring := pg_sequence_last_value('penstock."__inbox.1.ring"'::regclass);
    turn := ring / 2;
    spare := (turn + 1) % 4;
    if ring % 2 = 1 then
        if penstock."__inbox.1.is_locked"(1885695598, 1 * 4 + ((turn - 1) % 4)::int) then
            wait_ms := least(wait_ms, 1000);
        else
            perform setval('penstock."__inbox.1.since"'::regclass, now_ms);
            perform setval('penstock."__inbox.1.ring"'::regclass, turn * 2);
        end if;
    elsif not penstock."__inbox.1.is_empty"(spare) then
        perform penstock."__inbox.1.empty"(spare);
    elsif now_ms - pg_sequence_last_value('penstock."__inbox.1.since"'::regclass) >= half_ms then
        low := to_timestamp(pg_sequence_last_value('penstock."__inbox.1.low"'::regclass) / 1000.0);
        for t in turn - 2 .. turn - 2 loop -- a message that is held keeps its id known
            case t % 4
        when 0 then rest := exists (select from penstock."__inbox.1.held.0" h where h.due >= low limit 1);
        when 1 then rest := exists (select from penstock."__inbox.1.held.1" h where h.due >= low limit 1);
        when 2 then rest := exists (select from penstock."__inbox.1.held.2" h where h.due >= low limit 1);
        when 3 then rest := exists (select from penstock."__inbox.1.held.3" h where h.due >= low limit 1);
        end case;
        end loop;
        if not rest then
            perform setval('penstock."__inbox.1.ring"'::regclass, (turn + 1) * 2 + 1);
            wait_ms := least(wait_ms, 1000);
        end if;
    end if;
    perform setval('penstock."__inbox.1.next"'::regclass, now_ms + wait_ms);
end $function$;

-- is_locked returns whether a transaction, this one included, has an advisory lock.
CREATE OR REPLACE FUNCTION penstock."__inbox.1.is_locked"(class integer, key integer)
 RETURNS boolean
 LANGUAGE sql
AS $function$
    select exists (select from pg_locks l
                    where l.locktype = 'advisory' and l.objsubid = 2 and l.classid = $1::oid and l.objid = $2::oid
                      and l.database = (select d.oid from pg_database d where d.datname = current_database())) $function$;

-- is_empty returns whether a slot's tables take no space. It looks at sizes and opens none of them.
CREATE OR REPLACE FUNCTION penstock."__inbox.1.is_empty"(slot integer)
 RETURNS boolean
 LANGUAGE plpgsql
AS $function$ begin
    for t in slot .. slot loop
        case t % 4
        when 0 then return pg_relation_size('penstock."__inbox.1.seen.0"'::regclass) + pg_relation_size('penstock."__inbox.1.held.0"'::regclass)
                   + pg_relation_size('penstock."__inbox.1.heads.0"'::regclass) + pg_relation_size('penstock."__inbox.1.gaps.0"'::regclass) = 0;
        when 1 then return pg_relation_size('penstock."__inbox.1.seen.1"'::regclass) + pg_relation_size('penstock."__inbox.1.held.1"'::regclass)
                   + pg_relation_size('penstock."__inbox.1.heads.1"'::regclass) + pg_relation_size('penstock."__inbox.1.gaps.1"'::regclass) = 0;
        when 2 then return pg_relation_size('penstock."__inbox.1.seen.2"'::regclass) + pg_relation_size('penstock."__inbox.1.held.2"'::regclass)
                   + pg_relation_size('penstock."__inbox.1.heads.2"'::regclass) + pg_relation_size('penstock."__inbox.1.gaps.2"'::regclass) = 0;
        when 3 then return pg_relation_size('penstock."__inbox.1.seen.3"'::regclass) + pg_relation_size('penstock."__inbox.1.held.3"'::regclass)
                   + pg_relation_size('penstock."__inbox.1.heads.3"'::regclass) + pg_relation_size('penstock."__inbox.1.gaps.3"'::regclass) = 0;
        end case;
    end loop;
end $function$;

-- empty truncates a slot's tables, if it has their locks within 20 ms. They are out of the window, so all that is in them may go.
CREATE OR REPLACE FUNCTION penstock."__inbox.1.empty"(slot integer)
 RETURNS void
 LANGUAGE plpgsql
 SET lock_timeout TO '20ms'
AS $function$ begin
    for t in slot .. slot loop
        case t % 4
        when 0 then truncate table penstock."__inbox.1.seen.0", penstock."__inbox.1.held.0", penstock."__inbox.1.heads.0", penstock."__inbox.1.gaps.0";
        when 1 then truncate table penstock."__inbox.1.seen.1", penstock."__inbox.1.held.1", penstock."__inbox.1.heads.1", penstock."__inbox.1.gaps.1";
        when 2 then truncate table penstock."__inbox.1.seen.2", penstock."__inbox.1.held.2", penstock."__inbox.1.heads.2", penstock."__inbox.1.gaps.2";
        when 3 then truncate table penstock."__inbox.1.seen.3", penstock."__inbox.1.held.3", penstock."__inbox.1.heads.3", penstock."__inbox.1.gaps.3";
        end case;
    end loop;
exception when lock_not_available or object_in_use then
    null; -- someone reads there: the next maintenance tries again
end $function$;

-- enter_holding is enter for the transactions that hold a message back, which come in epochs.
CREATE OR REPLACE FUNCTION penstock."__inbox.1.enter_holding"()
 RETURNS void
 LANGUAGE plpgsql
AS $function$ declare
    epoch bigint := pg_sequence_last_value('penstock."__inbox.1.epoch"'::regclass);
    now   bigint;
begin
    loop
        perform pg_advisory_xact_lock_shared(1885695599, 1 * 2 + (epoch % 2)::int);
        now := pg_sequence_last_value('penstock."__inbox.1.epoch"'::regclass);
        exit when now is not distinct from epoch;
        epoch := now;
    end loop;
    if now is null then
        raise exception 'the sequence % has no value', 'penstock."__inbox.1.epoch"'::regclass using errcode = '55000', hint = 'it was restarted by hand: give it back the value that it had, by setval';
    end if;
end $function$;

-- advance moves low, below which no held message is due, visible or not: dead rows below it are not walked over. A candidate is
-- noted, then an epoch begins. A transaction that holds a message in it has read the candidate, and is due no earlier. Once those
-- of the epoch before have ended, what is due before the candidate is visible.
CREATE OR REPLACE FUNCTION penstock."__inbox.1.advance"()
 RETURNS void
 LANGUAGE plpgsql
AS $function$ declare
    now_ms    constant bigint := extract(epoch from clock_timestamp()) * 1000;
    epoch     bigint;
    ring      bigint;
    low       timestamptz;
    earliest  timestamptz;
    least_due timestamptz;
begin
    if not pg_try_advisory_xact_lock(1885695598, -1) then return; end if;
    epoch := pg_sequence_last_value('penstock."__inbox.1.epoch"'::regclass);
    if pg_sequence_last_value('penstock."__inbox.1.candidate"'::regclass) = 0 then
        if now_ms - pg_sequence_last_value('penstock."__inbox.1.low"'::regclass) < 1000 then return; end if;
        perform setval('penstock."__inbox.1.candidate"'::regclass, now_ms);
        epoch := epoch + 1;
        perform setval('penstock."__inbox.1.epoch"'::regclass, epoch);
    end if;
    if penstock."__inbox.1.is_locked"(1885695599, 1 * 2 + ((epoch - 1) % 2)::int) then return; end if;
    low := to_timestamp(pg_sequence_last_value('penstock."__inbox.1.low"'::regclass) / 1000.0);
    least_due := to_timestamp(pg_sequence_last_value('penstock."__inbox.1.candidate"'::regclass) / 1000.0);
    ring := penstock."__inbox.1.enter"();
    for t in ring / 2 - 2 - ring % 2 .. ring / 2 loop
        case t % 4
        when 0 then select h.due into earliest from penstock."__inbox.1.held.0" h where h.due >= low order by h.due limit 1;
        when 1 then select h.due into earliest from penstock."__inbox.1.held.1" h where h.due >= low order by h.due limit 1;
        when 2 then select h.due into earliest from penstock."__inbox.1.held.2" h where h.due >= low order by h.due limit 1;
        when 3 then select h.due into earliest from penstock."__inbox.1.held.3" h where h.due >= low order by h.due limit 1;
        end case;
        least_due := least(least_due, earliest);
    end loop;
    perform setval('penstock."__inbox.1.low"'::regclass, greatest(pg_sequence_last_value('penstock."__inbox.1.low"'::regclass), floor(extract(epoch from least_due) * 1000)::bigint - 1));
    perform setval('penstock."__inbox.1.candidate"'::regclass, 0);
end $function$;

-- status is one row of inboxes(). It counts by reading the held and the reported messages.
CREATE OR REPLACE FUNCTION penstock."__inbox.1.status"(OUT bytes bigint, OUT segment_bytes bigint[], OUT current_segment integer, OUT held bigint, OUT held_bytes bigint, OUT next_gap timestamp with time zone, OUT gaps bigint)
 RETURNS record
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET enable_seqscan TO 'off'
 SET enable_bitmapscan TO 'off'
 SET jit TO 'off'
AS $function$ declare
    ring constant bigint := pg_sequence_last_value('penstock."__inbox.1.ring"'::regclass);
    low  constant timestamptz := to_timestamp(pg_sequence_last_value('penstock."__inbox.1.low"'::regclass) / 1000.0);
    part record;
begin
    bytes := 0;
    segment_bytes := '{}';
    current_segment := ring / 2 % 4;
    held := 0;
    held_bytes := 0;
    gaps := 0;
    for t in 0 .. 3 loop
        case t % 4
        when 0 then select pg_total_relation_size('penstock."__inbox.1.seen.0"'::regclass) + pg_total_relation_size('penstock."__inbox.1.held.0"'::regclass) + pg_total_relation_size('penstock."__inbox.1.heads.0"'::regclass)
                    + pg_total_relation_size('penstock."__inbox.1.gaps.0"'::regclass) as bytes into part;
        when 1 then select pg_total_relation_size('penstock."__inbox.1.seen.1"'::regclass) + pg_total_relation_size('penstock."__inbox.1.held.1"'::regclass) + pg_total_relation_size('penstock."__inbox.1.heads.1"'::regclass)
                    + pg_total_relation_size('penstock."__inbox.1.gaps.1"'::regclass) as bytes into part;
        when 2 then select pg_total_relation_size('penstock."__inbox.1.seen.2"'::regclass) + pg_total_relation_size('penstock."__inbox.1.held.2"'::regclass) + pg_total_relation_size('penstock."__inbox.1.heads.2"'::regclass)
                    + pg_total_relation_size('penstock."__inbox.1.gaps.2"'::regclass) as bytes into part;
        when 3 then select pg_total_relation_size('penstock."__inbox.1.seen.3"'::regclass) + pg_total_relation_size('penstock."__inbox.1.held.3"'::regclass) + pg_total_relation_size('penstock."__inbox.1.heads.3"'::regclass)
                    + pg_total_relation_size('penstock."__inbox.1.gaps.3"'::regclass) as bytes into part;
        end case;
        segment_bytes := segment_bytes || part.bytes;
        bytes := bytes + part.bytes;
    end loop;
    for t in ring / 2 - 2 - ring % 2 .. ring / 2 loop
        case t % 4
        when 0 then select count(*) as held, coalesce(sum(octet_length(h.payload)), 0) as bytes, min(h.due) as due into part from penstock."__inbox.1.held.0" h where h.due >= low;
        when 1 then select count(*) as held, coalesce(sum(octet_length(h.payload)), 0) as bytes, min(h.due) as due into part from penstock."__inbox.1.held.1" h where h.due >= low;
        when 2 then select count(*) as held, coalesce(sum(octet_length(h.payload)), 0) as bytes, min(h.due) as due into part from penstock."__inbox.1.held.2" h where h.due >= low;
        when 3 then select count(*) as held, coalesce(sum(octet_length(h.payload)), 0) as bytes, min(h.due) as due into part from penstock."__inbox.1.held.3" h where h.due >= low;
        end case;
        held := held + part.held;
        held_bytes := held_bytes + part.bytes;
        next_gap := least(next_gap, part.due);
        case t % 4
        when 0 then select count(*) as gaps into part from penstock."__inbox.1.gaps.0" g;
        when 1 then select count(*) as gaps into part from penstock."__inbox.1.gaps.1" g;
        when 2 then select count(*) as gaps into part from penstock."__inbox.1.gaps.2" g;
        when 3 then select count(*) as gaps into part from penstock."__inbox.1.gaps.3" g;
        end case;
        gaps := gaps + part.gaps;
    end loop;
end $function$;

-- list_held is inbox_held.
CREATE OR REPLACE FUNCTION penstock."__inbox.1.list_held"(of_key text, of_previous text, of_id text, n integer)
 RETURNS SETOF penstock.held_message
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET enable_seqscan TO 'off'
 SET enable_bitmapscan TO 'off'
 SET jit TO 'off'
AS $function$ declare
    ring constant bigint := pg_sequence_last_value('penstock."__inbox.1.ring"'::regclass);
    low  constant timestamptz := to_timestamp(pg_sequence_last_value('penstock."__inbox.1.low"'::regclass) / 1000.0);
    all_of penstock.held_message[] := '{}';
    part   penstock.held_message[];
begin
    perform penstock._check_rows(n);
    for t in ring / 2 - 2 - ring % 2 .. ring / 2 loop
        case t % 4
        when 0 then select coalesce(array_agg(row(h.id, h.key, h.previous, null, h.at, h.due, h.headers, octet_length(h.payload),
                                             case when of_id is not null then h.payload end)::penstock.held_message), '{}') into part
                 from (select h.* from penstock."__inbox.1.held.0" h
                        where h.due >= low and (of_key is null or h.key = of_key) and (of_previous is null or h.previous = of_previous) and (of_id is null or h.id = of_id)
                        order by h.due limit n) h;
        when 1 then select coalesce(array_agg(row(h.id, h.key, h.previous, null, h.at, h.due, h.headers, octet_length(h.payload),
                                             case when of_id is not null then h.payload end)::penstock.held_message), '{}') into part
                 from (select h.* from penstock."__inbox.1.held.1" h
                        where h.due >= low and (of_key is null or h.key = of_key) and (of_previous is null or h.previous = of_previous) and (of_id is null or h.id = of_id)
                        order by h.due limit n) h;
        when 2 then select coalesce(array_agg(row(h.id, h.key, h.previous, null, h.at, h.due, h.headers, octet_length(h.payload),
                                             case when of_id is not null then h.payload end)::penstock.held_message), '{}') into part
                 from (select h.* from penstock."__inbox.1.held.2" h
                        where h.due >= low and (of_key is null or h.key = of_key) and (of_previous is null or h.previous = of_previous) and (of_id is null or h.id = of_id)
                        order by h.due limit n) h;
        when 3 then select coalesce(array_agg(row(h.id, h.key, h.previous, null, h.at, h.due, h.headers, octet_length(h.payload),
                                             case when of_id is not null then h.payload end)::penstock.held_message), '{}') into part
                 from (select h.* from penstock."__inbox.1.held.3" h
                        where h.due >= low and (of_key is null or h.key = of_key) and (of_previous is null or h.previous = of_previous) and (of_id is null or h.id = of_id)
                        order by h.due limit n) h;
        end case;
        all_of := all_of || part;
    end loop;
    return query select h.message_id, h.key, h.previous_id, penstock."__inbox.1.held_after"(h.previous_id, ring) is not null, h.held_at, h.due, h.headers, h.payload_bytes, h.payload
                   from (select * from unnest(all_of) order by due limit n) h order by h.due;
end $function$;

-- list_gaps is inbox_gaps.
CREATE OR REPLACE FUNCTION penstock."__inbox.1.list_gaps"(n integer)
 RETURNS SETOF penstock.inbox_gap
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET enable_seqscan TO 'off'
 SET enable_bitmapscan TO 'off'
 SET jit TO 'off'
AS $function$ declare
    ring constant bigint := pg_sequence_last_value('penstock."__inbox.1.ring"'::regclass);
    all_of penstock.inbox_gap[] := '{}';
    part   penstock.inbox_gap[];
begin
    perform penstock._check_rows(n);
    for t in reverse ring / 2 .. ring / 2 - 2 - ring % 2 loop
        case t % 4
        when 0 then select coalesce(array_agg(row(g.id, g.key, g.next, g.at, g.discarded, null)::penstock.inbox_gap), '{}') into part
                 from (select g.* from penstock."__inbox.1.gaps.0" g order by g.at desc limit n) g;
        when 1 then select coalesce(array_agg(row(g.id, g.key, g.next, g.at, g.discarded, null)::penstock.inbox_gap), '{}') into part
                 from (select g.* from penstock."__inbox.1.gaps.1" g order by g.at desc limit n) g;
        when 2 then select coalesce(array_agg(row(g.id, g.key, g.next, g.at, g.discarded, null)::penstock.inbox_gap), '{}') into part
                 from (select g.* from penstock."__inbox.1.gaps.2" g order by g.at desc limit n) g;
        when 3 then select coalesce(array_agg(row(g.id, g.key, g.next, g.at, g.discarded, null)::penstock.inbox_gap), '{}') into part
                 from (select g.* from penstock."__inbox.1.gaps.3" g order by g.at desc limit n) g;
        end case;
        all_of := all_of || part;
    end loop;
    return query select g.missing, g.key, g.followed_by, g.reported_at, g.discarded, penstock."__inbox.1.received"(g.missing, ring)
                   from (select * from unnest(all_of) order by reported_at desc limit n) g order by g.reported_at desc;
end $function$;

-- let_go is inbox_release: it makes messages due, in the order in which they would be, under the same rule as those that are held
-- anew. One that is being handed over just now is left to that.
CREATE OR REPLACE FUNCTION penstock."__inbox.1.let_go"(of_key text, of_previous text, of_id text)
 RETURNS bigint
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET enable_seqscan TO 'off'
 SET enable_bitmapscan TO 'off'
 SET jit TO 'off'
AS $function$ declare
    ring  bigint;
    low   timestamptz;
    base  timestamptz;
    let   bigint := 0;
    part  bigint;
begin
    perform penstock._read_committed();
    if pg_sequence_last_value('penstock."__inbox.1.holds"'::regclass) = 0 then return 0; end if;
    ring := penstock."__inbox.1.enter"();
    perform penstock."__inbox.1.enter_holding"();
    low := to_timestamp(pg_sequence_last_value('penstock."__inbox.1.low"'::regclass) / 1000.0);
    base := greatest(clock_timestamp(), to_timestamp(pg_sequence_last_value('penstock."__inbox.1.candidate"'::regclass) / 1000.0), low);
    for t in ring / 2 - 2 - ring % 2 .. ring / 2 loop
        case t % 4
        when 0 then with chosen as (
                   select h.id, row_number() over (order by h.due) as n
                     from (select h.id, h.due from penstock."__inbox.1.held.0" h
                            where h.due >= low and (of_key is null or h.key = of_key) and (of_previous is null or h.previous = of_previous) and (of_id is null or h.id = of_id)
                              for update skip locked) h),
               due as (update penstock."__inbox.1.held.0" h set due = least(h.due, base + (let + c.n) * interval '1 microsecond') from chosen c where h.id = c.id returning h.id)
               select count(*) into part from due;
        when 1 then with chosen as (
                   select h.id, row_number() over (order by h.due) as n
                     from (select h.id, h.due from penstock."__inbox.1.held.1" h
                            where h.due >= low and (of_key is null or h.key = of_key) and (of_previous is null or h.previous = of_previous) and (of_id is null or h.id = of_id)
                              for update skip locked) h),
               due as (update penstock."__inbox.1.held.1" h set due = least(h.due, base + (let + c.n) * interval '1 microsecond') from chosen c where h.id = c.id returning h.id)
               select count(*) into part from due;
        when 2 then with chosen as (
                   select h.id, row_number() over (order by h.due) as n
                     from (select h.id, h.due from penstock."__inbox.1.held.2" h
                            where h.due >= low and (of_key is null or h.key = of_key) and (of_previous is null or h.previous = of_previous) and (of_id is null or h.id = of_id)
                              for update skip locked) h),
               due as (update penstock."__inbox.1.held.2" h set due = least(h.due, base + (let + c.n) * interval '1 microsecond') from chosen c where h.id = c.id returning h.id)
               select count(*) into part from due;
        when 3 then with chosen as (
                   select h.id, row_number() over (order by h.due) as n
                     from (select h.id, h.due from penstock."__inbox.1.held.3" h
                            where h.due >= low and (of_key is null or h.key = of_key) and (of_previous is null or h.previous = of_previous) and (of_id is null or h.id = of_id)
                              for update skip locked) h),
               due as (update penstock."__inbox.1.held.3" h set due = least(h.due, base + (let + c.n) * interval '1 microsecond') from chosen c where h.id = c.id returning h.id)
               select count(*) into part from due;
        end case;
        let := let + part;
    end loop;
    return let;
end $function$;

-- discard is inbox_discard: as if the messages had never come. Under the key's lock, so that no transaction is handing them over
-- or about to wait for them.
CREATE OR REPLACE FUNCTION penstock."__inbox.1.discard"(ids text[])
 RETURNS SETOF text
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET enable_seqscan TO 'off'
 SET enable_bitmapscan TO 'off'
 SET jit TO 'off'
AS $function$ declare
    ring bigint;
    one  text;
    k    text;
    gone text;
begin
    perform penstock._read_committed();
    foreach one in array coalesce(ids, '{}') loop
        k := (select h.key from penstock."__inbox.1.list_held"(null, null, one, 1) h);
        continue when k is null;
        perform pg_advisory_xact_lock(hashtextextended(k, 1099511627777));
        ring := penstock."__inbox.1.enter"();
        gone := null;
        for t in ring / 2 - 2 - ring % 2 .. ring / 2 loop
            case t % 4
        when 0 then delete from penstock."__inbox.1.held.0" h where h.id = one returning h.id into gone;
        when 1 then delete from penstock."__inbox.1.held.1" h where h.id = one returning h.id into gone;
        when 2 then delete from penstock."__inbox.1.held.2" h where h.id = one returning h.id into gone;
        when 3 then delete from penstock."__inbox.1.held.3" h where h.id = one returning h.id into gone;
        end case;
            exit when gone is not null;
        end loop;
        continue when gone is null; -- handed over meanwhile
        for t in ring / 2 - 2 - ring % 2 .. ring / 2 loop
            case t % 4
        when 0 then delete from penstock."__inbox.1.seen.0" s where s.id = one;
        when 1 then delete from penstock."__inbox.1.seen.1" s where s.id = one;
        when 2 then delete from penstock."__inbox.1.seen.2" s where s.id = one;
        when 3 then delete from penstock."__inbox.1.seen.3" s where s.id = one;
        end case;
        end loop;
        for t in ring / 2 .. ring / 2 loop
            case t % 4
        when 0 then insert into penstock."__inbox.1.gaps.0" (id, key, discarded) values (one, k, true) on conflict (id) do update set at = excluded.at, discarded = true;
        when 1 then insert into penstock."__inbox.1.gaps.1" (id, key, discarded) values (one, k, true) on conflict (id) do update set at = excluded.at, discarded = true;
        when 2 then insert into penstock."__inbox.1.gaps.2" (id, key, discarded) values (one, k, true) on conflict (id) do update set at = excluded.at, discarded = true;
        when 3 then insert into penstock."__inbox.1.gaps.3" (id, key, discarded) values (one, k, true) on conflict (id) do update set at = excluded.at, discarded = true;
        end case;
        end loop;
        perform penstock."__inbox.1.let_go"(null, one, null);
        return next one;
    end loop;
end $function$;
