-- The queue emails, of first in, first out. As it stands in the database, with the comments of store/postgres/schema; TestGolden
-- compares it, and -update writes it.

create table penstock.emails (
    xid xid8 not null default pg_current_xact_id(),
    seq bigint not null default nextval('penstock."_emails.seq"'::regclass),
    created_at timestamp with time zone not null default clock_timestamp(),
    id bigint,
    attempt integer not null default 0,
    priority smallint not null default 0,
    slot smallint not null default ((pg_sequence_last_value('penstock."_emails.ring"'::regclass) % (1024)::bigint))::smallint,
    group_key text collate "C" not null default ''::text,
    key text collate "C",
    headers jsonb,
    payload bytea not null,
    failures jsonb
) partition by LIST (slot);
CREATE TRIGGER zz_validate BEFORE INSERT OR UPDATE ON penstock.emails FOR EACH ROW EXECUTE FUNCTION penstock._validate_job('penstock."_emails.flags"');
alter table penstock.emails enable always trigger zz_validate;

create table penstock."_emails.0" partition of penstock.emails FOR VALUES IN ('0') with (autovacuum_enabled=false, toast.autovacuum_enabled=false);
CREATE UNIQUE INDEX "_emails.0_group_key_priority_seq_idx" ON penstock."_emails.0" USING btree (group_key, priority, seq);
CREATE INDEX "_emails.0_id_idx" ON penstock."_emails.0" USING btree (id) WHERE (id IS NOT NULL);
CREATE INDEX "_emails.0_key_id_seq_idx" ON penstock."_emails.0" USING btree (key, id, seq) WHERE (key IS NOT NULL);
CREATE INDEX "_emails.0_key_seq_idx" ON penstock."_emails.0" USING btree (key, seq) WHERE ((key IS NOT NULL) AND (id IS NOT NULL));
CREATE INDEX "_emails.0_xid_idx" ON penstock."_emails.0" USING btree (xid);
alter table penstock."_emails.0" replica identity using index penstock."_emails.0_group_key_priority_seq_idx";

create table penstock."_emails.1" partition of penstock.emails FOR VALUES IN ('1') with (autovacuum_enabled=false, toast.autovacuum_enabled=false);
CREATE UNIQUE INDEX "_emails.1_group_key_priority_seq_idx" ON penstock."_emails.1" USING btree (group_key, priority, seq);
CREATE INDEX "_emails.1_id_idx" ON penstock."_emails.1" USING btree (id) WHERE (id IS NOT NULL);
CREATE INDEX "_emails.1_key_id_seq_idx" ON penstock."_emails.1" USING btree (key, id, seq) WHERE (key IS NOT NULL);
CREATE INDEX "_emails.1_key_seq_idx" ON penstock."_emails.1" USING btree (key, seq) WHERE ((key IS NOT NULL) AND (id IS NOT NULL));
CREATE INDEX "_emails.1_xid_idx" ON penstock."_emails.1" USING btree (xid);
alter table penstock."_emails.1" replica identity using index penstock."_emails.1_group_key_priority_seq_idx";

create table penstock."_emails.2" partition of penstock.emails FOR VALUES IN ('2') with (autovacuum_enabled=false, toast.autovacuum_enabled=false);
CREATE UNIQUE INDEX "_emails.2_group_key_priority_seq_idx" ON penstock."_emails.2" USING btree (group_key, priority, seq);
CREATE INDEX "_emails.2_id_idx" ON penstock."_emails.2" USING btree (id) WHERE (id IS NOT NULL);
CREATE INDEX "_emails.2_key_id_seq_idx" ON penstock."_emails.2" USING btree (key, id, seq) WHERE (key IS NOT NULL);
CREATE INDEX "_emails.2_key_seq_idx" ON penstock."_emails.2" USING btree (key, seq) WHERE ((key IS NOT NULL) AND (id IS NOT NULL));
CREATE INDEX "_emails.2_xid_idx" ON penstock."_emails.2" USING btree (xid);
alter table penstock."_emails.2" replica identity using index penstock."_emails.2_group_key_priority_seq_idx";

create sequence penstock."_emails.expired" minvalue 0; -- holds 0
create sequence penstock."_emails.fast_path" minvalue 0; -- holds 0
create sequence penstock."_emails.flags" minvalue 0; -- holds 65536
create sequence penstock."_emails.maintained" minvalue 0; -- holds 0
create sequence penstock."_emails.next" minvalue 0; -- holds 0
create sequence penstock."_emails.ring" minvalue 0; -- holds 0
create sequence penstock."_emails.seen" minvalue 0; -- holds 0
create sequence penstock."_emails.seq";

-- enqueue writes one job and returns its id; of a duplicate, the first one's. Mostly it is one expression and a plain INSERT, at
-- which the queue's trigger looks; without a search_path, as dequeue_NAME. _place handles a delay, a dedup key, a unique key and
-- barriers to wait for.
CREATE OR REPLACE FUNCTION penstock."_emails.enqueue"(payload bytea, key text, group_key text, priority integer, not_before timestamp with time zone, dedup_key text, headers jsonb)
 RETURNS bigint
 LANGUAGE plpgsql
 SECURITY DEFINER
AS $function$ declare
    made   bigint;
    placed record;
begin
    if not_before is null and dedup_key is null and (headers operator(pg_catalog.?|) '{penstock-unique-key,penstock-waits-for}') is not true and coalesce(priority, 0) operator(pg_catalog.>=) '-16' and coalesce(priority, 0) operator(pg_catalog.<=) '15'
       and coalesce(pg_catalog.current_setting('penstock.deduplicated_0', true), '') operator(pg_catalog.=) '' then
        insert into penstock.emails (key, group_key, priority, headers, payload)
        values (key, coalesce(group_key, ''), coalesce(priority, 0), headers, payload) returning seq into made;
        return made;
    end if;
    key := coalesce(key, headers operator(pg_catalog.->>) 'penstock-unique-key');
    select x.* into placed from penstock._place(1, 'penstock."_emails.seq"'::pg_catalog.regclass, array[payload], array[key], array[group_key], array[priority], array[not_before], array[dedup_key], array[headers]) x;
    if not placed.known[1] then
        insert into penstock.emails (seq, key, group_key, priority, headers, payload)
        values (placed.ids[1], key, coalesce(group_key, ''), coalesce(priority, 0), headers, payload);
    end if;
    return placed.ids[1];
end $function$;

-- enqueue_many writes a job for each payload and returns their ids in order. It writes them with one INSERT. _place handles
-- delays, dedup keys and unique keys before that.
CREATE OR REPLACE FUNCTION penstock."_emails.enqueue_many"(payloads bytea[], keys text[], group_keys text[], priorities integer[], not_befores timestamp with time zone[], dedup_keys text[], headers jsonb[])
 RETURNS SETOF bigint
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$ declare
    many   constant int := coalesce(cardinality(payloads), 0);
    one    boolean := false; -- has a unique key, or waits for barriers
    placed record;
begin
    if coalesce(cardinality(keys), many) <> many or coalesce(cardinality(group_keys), many) <> many or coalesce(cardinality(priorities), many) <> many
       or coalesce(cardinality(not_befores), many) <> many or coalesce(cardinality(dedup_keys), many) <> many or coalesce(cardinality(headers), many) <> many then
        raise exception 'the arrays differ in length' using errcode = '22023', hint = 'give each as many elements as payloads, or null instead of the array';
    end if;
    if headers is not null then
        one := exists (select from unnest(headers) h where h ?| '{penstock-unique-key,penstock-waits-for}');
        if one then
            keys := array(select coalesce(j.key, j.header ->> 'penstock-unique-key') from rows from (unnest(keys), unnest(headers)) with ordinality j(key, header, n) order by j.n);
        end if;
    end if;
    if one or array_remove(not_befores, null) <> '{}' or array_remove(dedup_keys, null) <> '{}' or current_setting('penstock.deduplicated_0', true) <> '' then
        select * into placed from penstock._place(1, 'penstock."_emails.seq"'::pg_catalog.regclass, payloads, keys, group_keys, priorities, not_befores, dedup_keys, headers);
        insert into penstock.emails (seq, key, group_key, priority, headers, payload)
        select j.id, j.key, coalesce(j.group_key, ''), coalesce(j.priority, 0), j.headers, j.payload
          from unnest(placed.ids, placed.known, payloads, keys, group_keys, priorities, headers) j(id, known, payload, key, group_key, priority, headers)
         where not j.known;
        return query select unnest(placed.ids);
        return;
    end if;
    if cardinality(priorities) > 0 then -- at all else the queue's trigger looks
        perform penstock._refuse_job('', null, null, p, null, null) from unnest(priorities) p where p not between -16 and 15;
    end if;
    return query insert into penstock.emails (key, group_key, priority, headers, payload)
    select j.key, coalesce(j.group_key, ''), coalesce(j.priority, 0), j.headers, j.payload
      from unnest(payloads, keys, group_keys, priorities, headers) j(payload, key, group_key, priority, headers)
    returning seq;
end $function$;

-- barrier makes a barrier, seals one, or notes that a new job holds it, see _barrier_call.
CREATE OR REPLACE FUNCTION penstock."_emails.barrier"(barrier bigint, job bigint)
 RETURNS bigint
 LANGUAGE sql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$ select penstock._barrier_call(1, barrier, job) $function$;

-- flags raises flags, see _validate_job: priorities and keys (bits 0 to 32), deadlines (35) and barriers (36). It cannot lower
-- one, nor raise that of a pause (33, 34).
CREATE OR REPLACE FUNCTION penstock."_emails.flags"(wanted bigint)
 RETURNS void
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$ begin perform penstock._write_flags('penstock."_emails.flags"'::pg_catalog.regclass, wanted & (4294967296 * 2 - 1 | 103079215104)); end $function$;

-- dequeue_NAME takes the next job of the group '' of the queue NAME, as dequeue does by default, a sixth cheaper, because no name
-- is looked up. It has a fast path, which is enough nearly always: one statement for a position that a register holds, and few
-- expressions, because PL/pgSQL prepares each anew in each transaction. For the same reason it has no search_path, which is a
-- twentieth of it; _qualified finds where its names are.
CREATE OR REPLACE FUNCTION penstock.dequeue_emails()
 RETURNS SETOF penstock.job
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET enable_seqscan TO 'off'
AS $function$ declare
    path bigint := case when pg_catalog.pg_sequence_last_value('penstock."_emails.flags"'::pg_catalog.regclass) operator(pg_catalog.=) '65536' then pg_catalog.pg_sequence_last_value('penstock."_emails.fast_path"'::pg_catalog.regclass) operator(pg_catalog.-) ((pg_catalog.date_part('epoch'::pg_catalog.text, pg_catalog.clock_timestamp()) operator(pg_catalog.*) '40')::bigint operator(pg_catalog.*) 4096) end;
    came bigint;
    here bigint;
    job  penstock.job;
begin

    -- The job at the position that is drawn, if it was never locked: without a separate lock it costs
    -- half. Another session may lock the job between the look at xmax and the delete, which then waits
    -- for it. But a position is drawn once, and a session that takes batches notes that first (mode 1). A
    -- transaction that may hold locks waits for no job.
    if path operator(pg_catalog.>=) 0 and path operator(pg_catalog.<) 1024 and pg_catalog.pg_current_xact_id_if_assigned() is null then
if path operator(pg_catalog.<) 1 then
            return query delete from penstock."_emails.0" t where t.group_key operator(pg_catalog.=) '' and t.priority operator(pg_catalog.=) 0 and t.seq operator(pg_catalog.=) (select pg_catalog.nextval('penstock."_emails.next"'::pg_catalog.regclass)) and t.xmax operator(pg_catalog.=) '0' and t.key is null and (t.headers operator(pg_catalog.->>) 'penstock-holds') is null
            returning coalesce(t.id, t.seq), t.key, t.group_key, t.priority, t.attempt operator(pg_catalog.+) 1, t.created_at, t.headers, t.payload;
elsif path operator(pg_catalog.<) 2 then
            return query delete from penstock."_emails.1" t where t.group_key operator(pg_catalog.=) '' and t.priority operator(pg_catalog.=) 0 and t.seq operator(pg_catalog.=) (select pg_catalog.nextval('penstock."_emails.next"'::pg_catalog.regclass)) and t.xmax operator(pg_catalog.=) '0' and t.key is null and (t.headers operator(pg_catalog.->>) 'penstock-holds') is null
            returning coalesce(t.id, t.seq), t.key, t.group_key, t.priority, t.attempt operator(pg_catalog.+) 1, t.created_at, t.headers, t.payload;
else
            return query delete from penstock."_emails.2" t where t.group_key operator(pg_catalog.=) '' and t.priority operator(pg_catalog.=) 0 and t.seq operator(pg_catalog.=) (select pg_catalog.nextval('penstock."_emails.next"'::pg_catalog.regclass)) and t.xmax operator(pg_catalog.=) '0' and t.key is null and (t.headers operator(pg_catalog.->>) 'penstock-holds') is null
            returning coalesce(t.id, t.seq), t.key, t.group_key, t.priority, t.attempt operator(pg_catalog.+) 1, t.created_at, t.headers, t.payload;
end if;
        if found then return; end if;
    end if;
    if path operator(pg_catalog.>=) 0 and path operator(pg_catalog.<) 3072 then

        here := path operator(pg_catalog.%) '1024';
        -- Mode 1: the first from the drawn position on that is free, but not far: a scan reads all entries of an index page within its bounds. Mode 2: from
        -- the position on, which stays.
if here operator(pg_catalog.<) 1 then
        return query delete from penstock."_emails.0" t where t.ctid operator(pg_catalog.=) (
            select t.ctid from penstock."_emails.0" t
             where t.group_key operator(pg_catalog.=) '' and t.priority operator(pg_catalog.=) 0 and t.key is null and (t.headers operator(pg_catalog.->>) 'penstock-holds') is null
               and t.seq operator(pg_catalog.>) (select case when path operator(pg_catalog.<) 2048 then pg_catalog.nextval('penstock."_emails.next"'::pg_catalog.regclass) operator(pg_catalog.-) 1 else pg_catalog.pg_sequence_last_value('penstock."_emails.next"'::pg_catalog.regclass) end)
               and t.seq operator(pg_catalog.<=) (select case when path operator(pg_catalog.<) 2048 then pg_catalog.pg_sequence_last_value('penstock."_emails.next"'::pg_catalog.regclass) operator(pg_catalog.+) 16 else 9223372036854775807 end)
             order by t.seq limit 1 for update skip locked)
        returning coalesce(t.id, t.seq), t.key, t.group_key, t.priority, t.attempt operator(pg_catalog.+) 1, t.created_at, t.headers, t.payload;
elsif here operator(pg_catalog.<) 2 then
        return query delete from penstock."_emails.1" t where t.ctid operator(pg_catalog.=) (
            select t.ctid from penstock."_emails.1" t
             where t.group_key operator(pg_catalog.=) '' and t.priority operator(pg_catalog.=) 0 and t.key is null and (t.headers operator(pg_catalog.->>) 'penstock-holds') is null
               and t.seq operator(pg_catalog.>) (select case when path operator(pg_catalog.<) 2048 then pg_catalog.nextval('penstock."_emails.next"'::pg_catalog.regclass) operator(pg_catalog.-) 1 else pg_catalog.pg_sequence_last_value('penstock."_emails.next"'::pg_catalog.regclass) end)
               and t.seq operator(pg_catalog.<=) (select case when path operator(pg_catalog.<) 2048 then pg_catalog.pg_sequence_last_value('penstock."_emails.next"'::pg_catalog.regclass) operator(pg_catalog.+) 16 else 9223372036854775807 end)
             order by t.seq limit 1 for update skip locked)
        returning coalesce(t.id, t.seq), t.key, t.group_key, t.priority, t.attempt operator(pg_catalog.+) 1, t.created_at, t.headers, t.payload;
else
        return query delete from penstock."_emails.2" t where t.ctid operator(pg_catalog.=) (
            select t.ctid from penstock."_emails.2" t
             where t.group_key operator(pg_catalog.=) '' and t.priority operator(pg_catalog.=) 0 and t.key is null and (t.headers operator(pg_catalog.->>) 'penstock-holds') is null
               and t.seq operator(pg_catalog.>) (select case when path operator(pg_catalog.<) 2048 then pg_catalog.nextval('penstock."_emails.next"'::pg_catalog.regclass) operator(pg_catalog.-) 1 else pg_catalog.pg_sequence_last_value('penstock."_emails.next"'::pg_catalog.regclass) end)
               and t.seq operator(pg_catalog.<=) (select case when path operator(pg_catalog.<) 2048 then pg_catalog.pg_sequence_last_value('penstock."_emails.next"'::pg_catalog.regclass) operator(pg_catalog.+) 16 else 9223372036854775807 end)
             order by t.seq limit 1 for update skip locked)
        returning coalesce(t.id, t.seq), t.key, t.group_key, t.priority, t.attempt operator(pg_catalog.+) 1, t.created_at, t.headers, t.payload;
end if;


        if found then return; end if;
    end if;
    job := penstock."_emails.scan"();
    if job.id is not null then return next job; end if;
    
    if pg_catalog.abs((pg_catalog.date_part('epoch'::pg_catalog.text, pg_catalog.clock_timestamp()) operator(pg_catalog.*) '1000')::bigint operator(pg_catalog.-) pg_catalog.pg_sequence_last_value('penstock."_emails.maintained"'::pg_catalog.regclass)) operator(pg_catalog.>=) 250
       and pg_catalog.current_setting('transaction_isolation') operator(pg_catalog.=) 'read committed' then
        insert into penstock._maintenance (queue) values (1);
    end if;
end $function$;

-- scan is the slow path: it takes one job by the skip map, which misses nothing, and notes in registers where the fast path
-- continues (docs/decisions/0008). next is the last position that was drawn; fast_path is the time, in units of 25 ms, * 4096 +
-- the mode * 1024 + the segment. It holds until the time moves on. So a job that appears behind the position, by a rollback or a
-- late commit, is found by the next scan; while one finds such jobs, all calls scan. The mode is 0 where each call draws a
-- position and takes the job there, and 1 where it takes the first from there on that is free. It is 2 with fewer than 64 jobs
-- waiting: then nothing is drawn. The position stays before the first job that an unlocked read sees, so that one whose taking is
-- rolled back comes next. LIFO draws positions downwards, and takes first the jobs after top: that far the sequence had come at
-- the last scan that found nothing above the position.
CREATE OR REPLACE FUNCTION penstock."_emails.scan"()
 RETURNS penstock.job
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET enable_seqscan TO 'off'
 SET enable_bitmapscan TO 'off'
 SET jit TO 'off'
 SET plan_cache_mode TO 'force_generic_plan'
AS $function$ declare
    was    bigint := pg_sequence_last_value('penstock."_emails.fast_path"'::pg_catalog.regclass);
    came   bigint := coalesce(pg_sequence_last_value('penstock."_emails.seq"'::pg_catalog.regclass), 0);
    pos    bigint := pg_sequence_last_value('penstock."_emails.next"'::pg_catalog.regclass);
    mode   bigint;
    first  bigint;
    here   smallint;

    other  bigint;


    m      record;
    job    record;
begin
    if pg_current_xact_id_if_assigned() is not null -- jobs that this transaction took may come back, and it does not see them
       or pg_sequence_last_value('penstock."_emails.flags"'::pg_catalog.regclass) <> 65536 then
        select row(coalesce(t.id, t.seq), t.key, t.group_key, t.priority, t.attempt operator(pg_catalog.+) 1, t.created_at, t.headers, t.payload)::penstock.job as row into job from penstock."_emails.take"(1, '', upkeep => false) t;
        return job.row;
    end if;
    if (pg_catalog.date_part('epoch'::pg_catalog.text, pg_catalog.clock_timestamp()) operator(pg_catalog.*) '40')::bigint - was / 4096 < 40 and was % '4096' < 2048 then -- others need not scan meanwhile
        perform setval('penstock."_emails.fast_path"'::pg_catalog.regclass, (pg_catalog.date_part('epoch'::pg_catalog.text, pg_catalog.clock_timestamp()) operator(pg_catalog.*) '40')::bigint * 4096 + was % '4096');
        mode := case when was % '4096' >= 1024 and random() < '0.9' then 1 else 0 end; -- there are also batches
    end if;
if pg_sequence_last_value('penstock._skip_map_slot'::pg_catalog.regclass) % 2 = 0 then
    select k.turn, k.slots, k.slots[1] as slot, k.lo[1] as low, k.hi[1] as high,
           k.turn = pg_sequence_last_value('penstock."_emails.ring"'::pg_catalog.regclass) and cardinality(k.slots) = 1 and cardinality(k.lo) = 1 and cardinality(k.pending) = 0 as plain
      into m from penstock._skip_map_0 k where k.queue = 1 and k.group_key = '' and k.priority = 0 order by k.n desc limit 1;
else
    select k.turn, k.slots, k.slots[1] as slot, k.lo[1] as low, k.hi[1] as high,
           k.turn = pg_sequence_last_value('penstock."_emails.ring"'::pg_catalog.regclass) and cardinality(k.slots) = 1 and cardinality(k.lo) = 1 and cardinality(k.pending) = 0 as plain
      into m from penstock._skip_map_1 k where k.queue = 1 and k.group_key = '' and k.priority = 0 order by k.n desc limit 1;
end if;
    if m.plain and (came - m.low <= 256 or random() > '0.25') then -- one range in one segment: without penstock."_emails.take", which costs a new session half as much again
if m.slot operator(pg_catalog.<) 1 then

        if came - pos < 64 then
            select t.seq into first from penstock."_emails.0" t where t.group_key = '' and t.priority = 0 and t.seq >= m.low order by t.seq limit 1;
        end if;

        delete from penstock."_emails.0" t where t.ctid = (
            select t.ctid from penstock."_emails.0" t
             where t.group_key = '' and t.priority = 0 and t.seq >= m.low and t.seq <= m.high and t.key is null and (t.headers operator(pg_catalog.->>) 'penstock-holds') is null
             order by t.seq asc limit 1 for update skip locked)
        returning row(coalesce(t.id, t.seq), t.key, t.group_key, t.priority, t.attempt operator(pg_catalog.+) 1, t.created_at, t.headers, t.payload)::penstock.job as row, t.seq, t.slot into job;
elsif m.slot operator(pg_catalog.<) 2 then

        if came - pos < 64 then
            select t.seq into first from penstock."_emails.1" t where t.group_key = '' and t.priority = 0 and t.seq >= m.low order by t.seq limit 1;
        end if;

        delete from penstock."_emails.1" t where t.ctid = (
            select t.ctid from penstock."_emails.1" t
             where t.group_key = '' and t.priority = 0 and t.seq >= m.low and t.seq <= m.high and t.key is null and (t.headers operator(pg_catalog.->>) 'penstock-holds') is null
             order by t.seq asc limit 1 for update skip locked)
        returning row(coalesce(t.id, t.seq), t.key, t.group_key, t.priority, t.attempt operator(pg_catalog.+) 1, t.created_at, t.headers, t.payload)::penstock.job as row, t.seq, t.slot into job;
else

        if came - pos < 64 then
            select t.seq into first from penstock."_emails.2" t where t.group_key = '' and t.priority = 0 and t.seq >= m.low order by t.seq limit 1;
        end if;

        delete from penstock."_emails.2" t where t.ctid = (
            select t.ctid from penstock."_emails.2" t
             where t.group_key = '' and t.priority = 0 and t.seq >= m.low and t.seq <= m.high and t.key is null and (t.headers operator(pg_catalog.->>) 'penstock-holds') is null
             order by t.seq asc limit 1 for update skip locked)
        returning row(coalesce(t.id, t.seq), t.key, t.group_key, t.priority, t.attempt operator(pg_catalog.+) 1, t.created_at, t.headers, t.payload)::penstock.job as row, t.seq, t.slot into job;
end if;
    else

        if came - pos < 64 then
            foreach here in array case when m.turn = pg_sequence_last_value('penstock."_emails.ring"'::pg_catalog.regclass) then m.slots else penstock._listed_slots(1, false, 'penstock."_emails.ring"'::pg_catalog.regclass) end loop
if here operator(pg_catalog.<) 1 then
                select t.seq into other from penstock."_emails.0" t where t.group_key = '' and t.priority = 0 and t.seq >= m.low order by t.seq limit 1;
elsif here operator(pg_catalog.<) 2 then
                select t.seq into other from penstock."_emails.1" t where t.group_key = '' and t.priority = 0 and t.seq >= m.low order by t.seq limit 1;
else
                select t.seq into other from penstock."_emails.2" t where t.group_key = '' and t.priority = 0 and t.seq >= m.low order by t.seq limit 1;
end if;
                first := least(first, other);
            end loop;
        end if;

        select row(coalesce(t.id, t.seq), t.key, t.group_key, t.priority, t.attempt operator(pg_catalog.+) 1, t.created_at, t.headers, t.payload)::penstock.job as row, t.seq, t.slot into job from penstock."_emails.take"(1, '', coalesce(m.plain, false) or random() < '0.25', false) t;
    end if;


    if came - pos >= 64 then
        if job.seq >= pos - 64 then
            -- Positions that were drawn for another segment than the job's are given back: nothing was there.
            perform setval('penstock."_emails.next"'::pg_catalog.regclass, case when was = 0 or was % '1024' <> job.slot then job.seq else greatest(pos, job.seq) end),
                    setval('penstock."_emails.fast_path"'::pg_catalog.regclass, (pg_catalog.date_part('epoch'::pg_catalog.text, pg_catalog.clock_timestamp()) operator(pg_catalog.*) '40')::bigint * 4096 + coalesce(mode, 0) * 1024 + job.slot);
        elsif job.seq is null then -- the next scan reads the first
            perform setval('penstock."_emails.next"'::pg_catalog.regclass, came), setval('penstock."_emails.fast_path"'::pg_catalog.regclass, 0);
        else
            perform setval('penstock."_emails.fast_path"'::pg_catalog.regclass, 0);
        end if;
    elsif job.seq is null then
        perform setval('penstock."_emails.next"'::pg_catalog.regclass, greatest(coalesce(first - 1, came), 0)), setval('penstock."_emails.fast_path"'::pg_catalog.regclass, (pg_catalog.date_part('epoch'::pg_catalog.text, pg_catalog.clock_timestamp()) operator(pg_catalog.*) '40')::bigint * 4096 + 2048 + pg_sequence_last_value('penstock."_emails.ring"'::pg_catalog.regclass) % '1024');
    else
        perform setval('penstock."_emails.next"'::pg_catalog.regclass, greatest(first, job.seq - 1000, 1) - 1), -- not over all dead rows behind a job that another session holds
                setval('penstock."_emails.fast_path"'::pg_catalog.regclass, (pg_catalog.date_part('epoch'::pg_catalog.text, pg_catalog.clock_timestamp()) operator(pg_catalog.*) '40')::bigint * 4096 + 2048 + job.slot);
    end if;

    return job.row;
end $function$;

-- take deletes up to n jobs of a group and returns them as rows of the queue, by priority and in order. A batch continues where
-- the last one ended; otherwise the skip map shows where jobs may be. It locks rows that are free, segment by segment as listed,
-- and waits for none. due decides whether to write a new skip map; null: now and then. upkeep: the queue's maintenance may be
-- due. admitted: null if the jobs end with it; for a claim, whose acks look at barriers, whether it has asked _admit, which knows
-- of pauses and limits.
CREATE OR REPLACE FUNCTION penstock."_emails.take"(n integer, in_group text, due boolean DEFAULT NULL::boolean, upkeep boolean DEFAULT true, admitted boolean DEFAULT NULL::boolean)
 RETURNS SETOF penstock.emails
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET enable_seqscan TO 'off'
 SET enable_bitmapscan TO 'off'
 SET jit TO 'off'
 SET plan_cache_mode TO 'force_generic_plan'
AS $function$ declare
    flags constant bigint := pg_sequence_last_value('penstock."_emails.flags"'::pg_catalog.regclass) & case when admitted then ~(25769803776 | 68719476736) when not admitted then ~68719476736 else -1 end;
    fresh constant boolean := pg_current_xact_id_if_assigned() is null;
    path  bigint; pos bigint; most int; here smallint; got int; m record; todo int := n; p int := 0;
begin
    if (n between 1 and 10000) is not true then
        raise exception 'n is %, expected 1 to 10000', coalesce(n::text, 'null') using errcode = '22023', hint = 'call it again for more';
    end if;
    -- A batch that continues where the last one ended does not step over what others hold. Nor does a claim of one
    -- job; a dequeue of one has tried that.
    if (n > 1 or due is not false) and in_group = '' and flags = 65536 and not false then
        loop
            path := pg_sequence_last_value('penstock."_emails.fast_path"'::pg_catalog.regclass) - (pg_catalog.date_part('epoch'::pg_catalog.text, pg_catalog.clock_timestamp()) operator(pg_catalog.*) '40')::bigint * 4096;
            exit when due or path not between 0 and 2047;
            if path < 1024 then -- see penstock."_emails.scan"
                path := path + 1024;
                perform setval('penstock."_emails.fast_path"'::pg_catalog.regclass, (pg_catalog.date_part('epoch'::pg_catalog.text, pg_catalog.clock_timestamp()) operator(pg_catalog.*) '40')::bigint * 4096 + path);
            end if;
            pos := pg_sequence_last_value('penstock."_emails.next"'::pg_catalog.regclass);
            most := least(todo, pg_sequence_last_value('penstock."_emails.seq"'::pg_catalog.regclass) - pos); -- else the next jobs would come after those behind them
            exit when (most > 0) is not true;
            pos := setval('penstock."_emails.next"'::pg_catalog.regclass, pos + most) - most;
if path operator(pg_catalog.<) 1025 then
            return query with d as (delete from penstock."_emails.0" t where t.ctid = any (array(
                select t.ctid from penstock."_emails.0" t
                 where t.group_key = '' and t.priority = 0 and t.seq > pos and t.seq <= pos + 2 * todo and (t.key is null and (t.headers operator(pg_catalog.->>) 'penstock-holds') is null or t.key is null and admitted is not null)
                 order by t.seq limit todo for update skip locked)) returning t.*)
            select t.* from d t order by t.seq;
elsif path operator(pg_catalog.<) 1026 then
            return query with d as (delete from penstock."_emails.1" t where t.ctid = any (array(
                select t.ctid from penstock."_emails.1" t
                 where t.group_key = '' and t.priority = 0 and t.seq > pos and t.seq <= pos + 2 * todo and (t.key is null and (t.headers operator(pg_catalog.->>) 'penstock-holds') is null or t.key is null and admitted is not null)
                 order by t.seq limit todo for update skip locked)) returning t.*)
            select t.* from d t order by t.seq;
else
            return query with d as (delete from penstock."_emails.2" t where t.ctid = any (array(
                select t.ctid from penstock."_emails.2" t
                 where t.group_key = '' and t.priority = 0 and t.seq > pos and t.seq <= pos + 2 * todo and (t.key is null and (t.headers operator(pg_catalog.->>) 'penstock-holds') is null or t.key is null and admitted is not null)
                 order by t.seq limit todo for update skip locked)) returning t.*)
            select t.* from d t order by t.seq;
end if;
            get diagnostics got = row_count;
            todo := todo - got;
            -- Nothing was at these positions: their jobs are elsewhere, and come next.
            if got = 0 and pg_sequence_last_value('penstock."_emails.next"'::pg_catalog.regclass) = pos + most then pos := setval('penstock."_emails.next"'::pg_catalog.regclass, pos); end if;
            exit when todo <= 0 or got = 0;
        end loop;
    end if;
    -- A new skip map pays once for this many jobs, where much may be gone.
    due := coalesce(due, random() < case when n < 16 then n::float8 / '64' else '0.125' end);
    if todo > 0 and flags <> 65536 then
        p := -16;
        todo := case when flags & 25769803776 = 0 or penstock._may_dequeue(1, in_group) then todo else 0 end;
        if todo > 0 and flags & (4294967296 | 103079215104) <> 0 then
            return query select t.* from penstock."_emails.take_keyed"(n, in_group, admitted is not null) t; -- also of a claim that began before the first key
            todo := 0;
        end if;
    end if;
    while todo > 0 and p < 16 loop
        if p = 0 or flags & (1::bigint << (16 + p)) <> 0 then
if pg_sequence_last_value('penstock._skip_map_slot'::pg_catalog.regclass) % 2 = 0 then
            select k.n, k.turn, k.lo, k.hi, k.pending, k.slots into m from penstock._skip_map_0 k
             where k.queue = 1 and k.group_key = in_group and k.priority = p order by k.n desc limit 1;
else
            select k.n, k.turn, k.lo, k.hi, k.pending, k.slots into m from penstock._skip_map_1 k
             where k.queue = 1 and k.group_key = in_group and k.priority = p order by k.n desc limit 1;
end if;
            if m.n is null or due and pg_sequence_last_value('penstock."_emails.seq"'::pg_catalog.regclass) - m.lo[1] > 256
               or cardinality(m.pending) > 0 and exists (select from unnest(m.pending) x where pg_visible_in_snapshot(x, pg_current_snapshot()) or x >= pg_snapshot_xmax(pg_current_snapshot())) then
                select k.n, k.turn, k.lo, k.hi, k.pending, k.slots into m from penstock."_emails.skip_map"(in_group, p::smallint) k;
            end if;
            if m.turn <> pg_sequence_last_value('penstock."_emails.ring"'::pg_catalog.regclass) then m.slots := penstock._listed_slots(1, false, 'penstock."_emails.ring"'::pg_catalog.regclass); end if;
            -- With mode 2 less than a second ago few jobs waited: the call that found that sets the registers anew itself.
            if path is not null and todo = n and pg_sequence_last_value('penstock."_emails.seq"'::pg_catalog.regclass) - m.lo[1] >= 512 and fresh
               and not (path between -40 * 4096 and 4095 and (path + 40 * 4096) % '4096' >= 2048) then
                perform penstock._reposition('emails', n, m.lo[1], m.slots);
            end if;
            -- The segment is named, so that the statement opens one table and not the whole ring. All
            -- rows are locked first and deleted then: locked one by one between deletes, they make
            -- workers who go over the same rows meet at each.
            foreach here in array m.slots loop
if here operator(pg_catalog.<) 1 then
                return query with d as (delete from penstock."_emails.0" t where t.ctid = any (array(
                    select v.ctid from (select unnest(m.lo) as lo, unnest(m.hi) as hi) i cross join lateral (
                        select t.ctid from penstock."_emails.0" t
                         where t.group_key = in_group and t.priority = p and t.seq >= i.lo and t.seq <= i.hi and (t.key is null and (t.headers operator(pg_catalog.->>) 'penstock-holds') is null or t.key is null and admitted is not null)
                         order by t.seq asc limit todo for update skip locked) v limit todo)) returning t.*)
                select t.* from d t order by t.seq asc;
elsif here operator(pg_catalog.<) 2 then
                return query with d as (delete from penstock."_emails.1" t where t.ctid = any (array(
                    select v.ctid from (select unnest(m.lo) as lo, unnest(m.hi) as hi) i cross join lateral (
                        select t.ctid from penstock."_emails.1" t
                         where t.group_key = in_group and t.priority = p and t.seq >= i.lo and t.seq <= i.hi and (t.key is null and (t.headers operator(pg_catalog.->>) 'penstock-holds') is null or t.key is null and admitted is not null)
                         order by t.seq asc limit todo for update skip locked) v limit todo)) returning t.*)
                select t.* from d t order by t.seq asc;
else
                return query with d as (delete from penstock."_emails.2" t where t.ctid = any (array(
                    select v.ctid from (select unnest(m.lo) as lo, unnest(m.hi) as hi) i cross join lateral (
                        select t.ctid from penstock."_emails.2" t
                         where t.group_key = in_group and t.priority = p and t.seq >= i.lo and t.seq <= i.hi and (t.key is null and (t.headers operator(pg_catalog.->>) 'penstock-holds') is null or t.key is null and admitted is not null)
                         order by t.seq asc limit todo for update skip locked) v limit todo)) returning t.*)
                select t.* from d t order by t.seq asc;
end if;
                get diagnostics got = row_count;
                todo := todo - got;
                exit when todo <= 0;
            end loop;
        end if;
        p := case when flags = 65536 then 16 else p + 1 end;
    end loop;
    
    if upkeep and pg_catalog.abs((pg_catalog.date_part('epoch'::pg_catalog.text, pg_catalog.clock_timestamp()) operator(pg_catalog.*) '1000')::bigint operator(pg_catalog.-) pg_catalog.pg_sequence_last_value('penstock."_emails.maintained"'::pg_catalog.regclass)) operator(pg_catalog.>=) 250
       and pg_catalog.current_setting('transaction_isolation') operator(pg_catalog.=) 'read committed' then
        insert into penstock._maintenance (queue) values (1);
    end if;
end $function$;

-- skip_map writes a new skip map if that brings something. It reads the jobs that are there, within the ranges of the last one.
-- Between them nothing is left, as far as the sequence had come when the last one was written. Its xid lies between the drawing
-- of such a seq and the snapshot of the new one (docs/decisions/0003). So the transaction that drew it has ended, or is in the
-- snapshot's list and pending from now on. An xid of the future is another cluster's, which a restored skip map waits for: it has
-- ended as well. It locks nothing: a job whose taking is not committed is still seen. It goes from older segments to younger
-- ones, as jobs do that are carried over, so it misses none that moves meanwhile.
CREATE OR REPLACE FUNCTION penstock."_emails.skip_map"(in_group text, in_priority smallint, bound bigint DEFAULT NULL::bigint)
 RETURNS penstock._skip_map
 LANGUAGE plpgsql
AS $function$ declare
    b     constant record := penstock._begin_skip_map(1, false, 'penstock."_emails.ring"'::pg_catalog.regclass, 'penstock."_emails.seq"'::pg_catalog.regclass, in_group, in_priority, bound);
    slots constant smallint[] := (b.new).slots;
    here  smallint;
    seqs  bigint[] := '{}';
    found int8multirange;
    late  int8multirange := '{}';
begin
    for i in 1 .. cardinality(slots) loop
        here := slots[i];
if here operator(pg_catalog.<) 1 then
        seqs := seqs || array(
            select v.seq from (select unnest((b.was).lo) as lo, unnest((b.was).hi) as hi) r cross join lateral (
                select t.seq from penstock."_emails.0" t
                 where t.group_key = in_group and t.priority = in_priority and t.seq >= r.lo and t.seq <= least(r.hi, (b.new).base)
                 order by t.seq asc limit b.most) v limit b.most);
        if b.ended <> '{}' then
            select case when count(*) <= 100 then range_agg(int8range(t.seq, t.seq, '[]')) else int8multirange(int8range(min(t.seq), max(t.seq), '[]')) end into found
              from unnest(b.ended) x cross join lateral (
                select l.seq, l.group_key, l.priority from penstock."_emails.0" l where l.xid = x offset 0) t -- by xid: a planner might prefer the other index
             where t.group_key = in_group and t.priority = in_priority;
            late := late + coalesce(found, '{}');
        end if;
elsif here operator(pg_catalog.<) 2 then
        seqs := seqs || array(
            select v.seq from (select unnest((b.was).lo) as lo, unnest((b.was).hi) as hi) r cross join lateral (
                select t.seq from penstock."_emails.1" t
                 where t.group_key = in_group and t.priority = in_priority and t.seq >= r.lo and t.seq <= least(r.hi, (b.new).base)
                 order by t.seq asc limit b.most) v limit b.most);
        if b.ended <> '{}' then
            select case when count(*) <= 100 then range_agg(int8range(t.seq, t.seq, '[]')) else int8multirange(int8range(min(t.seq), max(t.seq), '[]')) end into found
              from unnest(b.ended) x cross join lateral (
                select l.seq, l.group_key, l.priority from penstock."_emails.1" l where l.xid = x offset 0) t -- by xid: a planner might prefer the other index
             where t.group_key = in_group and t.priority = in_priority;
            late := late + coalesce(found, '{}');
        end if;
else
        seqs := seqs || array(
            select v.seq from (select unnest((b.was).lo) as lo, unnest((b.was).hi) as hi) r cross join lateral (
                select t.seq from penstock."_emails.2" t
                 where t.group_key = in_group and t.priority = in_priority and t.seq >= r.lo and t.seq <= least(r.hi, (b.new).base)
                 order by t.seq asc limit b.most) v limit b.most);
        if b.ended <> '{}' then
            select case when count(*) <= 100 then range_agg(int8range(t.seq, t.seq, '[]')) else int8multirange(int8range(min(t.seq), max(t.seq), '[]')) end into found
              from unnest(b.ended) x cross join lateral (
                select l.seq, l.group_key, l.priority from penstock."_emails.2" l where l.xid = x offset 0) t -- by xid: a planner might prefer the other index
             where t.group_key = in_group and t.priority = in_priority;
            late := late + coalesce(found, '{}');
        end if;
end if;
    end loop;
    return penstock._end_skip_map(false, 'penstock."_emails.ring"'::pg_catalog.regclass, 'penstock."_emails.seen"'::pg_catalog.regclass, b.was, b.new, b.snap, b.most, seqs, late);
end $function$;

-- claim takes jobs from the ring and leases them. It asks where to write leases when it has the jobs: what waits for one until
-- then could miss that the ring of leases turns. Then it ends the jobs of acks, as ack does: a worker's done jobs and its next
-- ones go with one call. A row with nothing but a lease means that this one of acks was held; lease 0 means that the limit is
-- near (crowded, see _admit). If the caller passes acks, even '{}', jobs from a backlog share a row: a copy of each with its
-- entries in indexes costs most of a claim. A transaction that acks one of them waits until a transaction that acks another has
-- ended. ack and _part know such rows.
CREATE OR REPLACE FUNCTION penstock."_emails.claim"(n integer, lease interval, in_group text, worker text, acks bigint[] DEFAULT NULL::bigint[])
 RETURNS SETOF penstock.leased_job
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET enable_seqscan TO 'off'
 SET enable_bitmapscan TO 'off'
 SET jit TO 'off'
 SET plan_cache_mode TO 'force_generic_plan'
AS $function$ declare
    flags constant bigint := pg_sequence_last_value('penstock."_emails.flags"'::pg_catalog.regclass) & ~68719476736; -- only the ends of jobs look at barriers
    until constant timestamptz := clock_timestamp() + least(lease, interval '1000 years'); -- more is refused
    came  constant bigint := case when flags = 65536 and in_group = '' and not false then coalesce(pg_sequence_last_value('penstock."_emails.seq"'::pg_catalog.regclass), 0) end;
    path  constant bigint := case when came - pg_sequence_last_value('penstock."_emails.next"'::pg_catalog.regclass) <= 512
                                       and pg_sequence_last_value('penstock."_emails.fast_path"'::pg_catalog.regclass) - (pg_catalog.date_part('epoch'::pg_catalog.text, pg_catalog.clock_timestamp()) operator(pg_catalog.*) '40')::bigint * 4096 - 2048 - pg_sequence_last_value('penstock."_emails.ring"'::pg_catalog.regclass) % 1024 in (0, -4096)
                                  then pg_sequence_last_value('penstock."_emails.ring"'::pg_catalog.regclass) % 1024 end;
    -- A transaction that may hold locks does not wait for a job, see penstock."_emails.draw".
    free  constant int := case when pg_current_xact_id_if_assigned() is null then 0 else 1024 end;
    due   boolean; leaf int;
    drawn bigint; pos bigint; base bigint;
    got   int; most int; empty int := 0;
begin
    if (n between 1 and 10000 and lease > interval '0' and lease <= interval '1000 years' and coalesce(octet_length(worker), 0) <= 256) is not true then
        perform penstock._refuse_claim(n, lease, worker);
    end if;
    -- While few jobs wait: one statement from the place in registers, as dequeue_NAME has (docs/decisions/0008). A penstock."_emails.claim_scan"
    -- that left nothing sets them, to 64 seqs before the latest, so that what is in flight now will be found. They hold for these
    -- 25 ms and the next: no other session would move them on meanwhile.
    if path is not null then
        return query insert into penstock._lease as l (slot, queue, attempt, lease_until, id, created_at, priority, worker, group_key, key, headers, payload, failures, claimed_at)
        select (select pg_sequence_last_value('penstock._lease_slot'::pg_catalog.regclass) % 2), 1, t.attempt + 1, until, coalesce(t.id, t.seq), t.created_at, t.priority, coalesce(worker, ''), t.group_key, t.key, t.headers, t.payload, t.failures, until operator(pg_catalog.-) lease from penstock."_emails.draw"(path + 2048, pg_sequence_last_value('penstock."_emails.next"'::pg_catalog.regclass), n) t order by t.seq
        returning l.id, l.key, l.group_key, l.priority, l.attempt, l.created_at, l.headers, l.payload, l.lease, l.lease_until;
    -- From a backlog: the jobs behind the position that were never locked, and the position moves on. To lock each before it is
    -- deleted takes as long again as all else. Another claim that has drawn the same position, which is rare, waits for this one
    -- to commit. The scan comes five times a second, not forty as in penstock."_emails.scan": a claim that finds nothing takes three to five times
    -- as long.
    elsif came is not null then
        drawn := pg_sequence_last_value('penstock."_emails.fast_path"'::pg_catalog.regclass) - ((pg_catalog.date_part('epoch'::pg_catalog.text, pg_catalog.clock_timestamp()) operator(pg_catalog.*) '40')::bigint - 7) * 4096;
        if drawn between 0 and 32767 and drawn % 4096 < 2048 then
            if drawn % 4096 < 1024 then -- see penstock."_emails.scan"
                drawn := drawn + 1024;
                perform setval('penstock."_emails.fast_path"'::pg_catalog.regclass, ((pg_catalog.date_part('epoch'::pg_catalog.text, pg_catalog.clock_timestamp()) operator(pg_catalog.*) '40')::bigint - 7) * 4096 + drawn);
            end if;
            loop
                pos := pg_sequence_last_value('penstock."_emails.next"'::pg_catalog.regclass);
                most := least(n, came - pos, case when acks is null then 10000 else 255 end);
                exit when (most > 0) is not true;
                -- With one, no other session draws the same, and mostly no WAL is written. An assignment costs a third of a
                -- PERFORM.
                pos := case when most = 1 then nextval('penstock."_emails.next"'::pg_catalog.regclass) - 1 else setval('penstock."_emails.next"'::pg_catalog.regclass, pos + most) - most end;
                if acks is null or most < 8 then
                    return query insert into penstock._lease as l (slot, queue, attempt, lease_until, id, created_at, priority, worker, group_key, key, headers, payload, failures, claimed_at)
                    select (select pg_sequence_last_value('penstock._lease_slot'::pg_catalog.regclass) % 2), 1, t.attempt + 1, until, coalesce(t.id, t.seq), t.created_at, t.priority, coalesce(worker, ''), t.group_key, t.key, t.headers, t.payload, t.failures, until operator(pg_catalog.-) lease from penstock."_emails.draw"(drawn % 1024 + free, pos, most) t
                    returning l.id, l.key, l.group_key, l.priority, l.attempt, l.created_at, l.headers, l.payload, l.lease, l.lease_until;
                else
                    base := (nextval('penstock._lease_n'::pg_catalog.regclass) % 34359738368 << 28) | (floor(random() * 524288)::bigint << 9) | 1;
                    return query with d as materialized (select * from penstock."_emails.draw"(drawn % 1024 + free, pos, most)), -- A row for the jobs of d, each at its place in it, whose headers name the barrier that all of them hold. It is a row each if they
                    -- are few, or one is large, or if another flag was raised since they were read.
                    alike as (
                        select a.*, a.n >= 8 and a.n = cardinality(a.jobs) and pg_sequence_last_value('penstock."_emails.flags"'::pg_catalog.regclass) & ~68719476736 = 65536 as yes
                          from (select count(*) as n, array_agg(row(base + 2 * (t.seq - pos), coalesce(t.id, t.seq), t.created_at, t.attempt + 1, t.headers, t.payload, t.failures)::penstock._claimed)
                                                          filter (where octet_length(t.payload) <= 65536) as jobs,
                                       array_agg(t.headers ->> 'penstock-holds') filter (where (select pg_sequence_last_value('penstock."_emails.flags"'::pg_catalog.regclass) & 68719476736 <> 0)) as holds from d t) a),
                    one as (
                        insert into penstock._lease (slot, queue, lease, lease_until, claimed_at, worker, priority, group_key, done, headers, jobs)
                        select (select pg_sequence_last_value('penstock._lease_slot'::pg_catalog.regclass) % 2), 1, base, until, until - lease, coalesce(worker, ''), 0, in_group,
                               case when a.n = most then ~((~'0'::pg_catalog.bit(256)) << 256 - a.n::int >> 1) else ~(select bit_or(set_bit('0'::pg_catalog.bit(256), (t.seq - pos)::int, 1)) from d t) end, penstock._all_hold(a.holds), a.jobs
                          from alike a where a.yes),
                    each as (
                        insert into penstock._lease (slot, lease, queue, attempt, lease_until, id, created_at, priority, worker, group_key, key, headers, payload, failures, claimed_at)
                        select (select pg_sequence_last_value('penstock._lease_slot'::pg_catalog.regclass) % 2), base + 2 * (t.seq - pos), 1, t.attempt + 1, until, coalesce(t.id, t.seq), t.created_at, t.priority, coalesce(worker, ''), t.group_key, t.key, t.headers, t.payload, t.failures, until operator(pg_catalog.-) lease from d t where (select a.yes from alike a) is not true)
                    select coalesce(t.id, t.seq), t.key, t.group_key, t.priority, t.attempt operator(pg_catalog.+) 1, t.created_at, t.headers, t.payload, base + 2 * (t.seq - pos), until from d t;
                end if;
                get diagnostics got = row_count;
                exit when got = n;
                n := n - got;
                empty := empty + (got = 0)::int;
                got := null;
                exit when empty > 2;
            end loop;
        end if;
    end if;
    if path is null and got is distinct from n then
        return query select * from penstock."_emails.claim_scan"(n, until, lease, in_group, worker, acks, came);
    end if;
    -- The ends come last, because they draw an xid, and a skip map made after it bounds nothing (see penstock."_emails.skip_map"). Mostly the leases
    -- are in the same table: without a call of penstock."_emails.ack", which opens both, that costs half.
    if acks <> '{}' then
        leaf := pg_sequence_last_value('penstock._lease_slot'::pg_catalog.regclass) % 2;
        due := acks[1] & 1 = 0 and (path is not null or got = n) and pg_sequence_last_value('penstock."_emails.flags"'::pg_catalog.regclass) & 68719476736 = 0;
        if due and cardinality(acks) > 1 then -- where penstock."_emails.ack" would lock them in this order
            due := pg_sequence_last_value('penstock._lease_slot'::pg_catalog.regclass) < 2 and (select bit_or(a) & 1 = 0 from unnest(acks) a);
        end if;
        if due then
if leaf = 0 then
            return query delete from penstock._lease_0 l where l.lease = any (acks) and l.queue + 0 = 1 and l.jobs is null
            returning null::bigint, null::text, null::text, null::smallint, null::int, null::timestamptz, null::jsonb, null::bytea, l.lease, null::timestamptz;
else
            return query delete from penstock._lease_1 l where l.lease = any (acks) and l.queue + 0 = 1 and l.jobs is null
            returning null::bigint, null::text, null::text, null::smallint, null::int, null::timestamptz, null::jsonb, null::bytea, l.lease, null::timestamptz;
end if;
            get diagnostics got = row_count;
            if got = cardinality(acks) then acks := null; end if;
        elsif acks[1] & 1 = 1 and acks[cardinality(acks)] - acks[1] = 2 * cardinality(acks) - 2 then
if leaf = 0 then
            return query with l as ( -- all of a claim, as it came; mostly that row is still as it was written
                delete from penstock._lease_0 l where l.lease = acks[1] - 2 and l.queue + 0 = 1
                   and l.done = ~((~'0'::pg_catalog.bit(256)) << 256 - cardinality(acks) >> 1) and acks = array(select generate_series(acks[1], acks[cardinality(acks)], 2))
                returning l.headers, l.jobs) select null::bigint, null::text, null::text, null::smallint, null::int, null::timestamptz, null::jsonb, null::bytea, unnest(acks), null::timestamptz from l where pg_sequence_last_value('penstock."_emails.flags"'::pg_catalog.regclass) & 68719476736 = 0 or penstock._not_last(l.headers) or penstock._count_all(1, l.jobs, l.headers, cardinality(acks));
else
            return query with l as ( -- all of a claim, as it came; mostly that row is still as it was written
                delete from penstock._lease_1 l where l.lease = acks[1] - 2 and l.queue + 0 = 1
                   and l.done = ~((~'0'::pg_catalog.bit(256)) << 256 - cardinality(acks) >> 1) and acks = array(select generate_series(acks[1], acks[cardinality(acks)], 2))
                returning l.headers, l.jobs) select null::bigint, null::text, null::text, null::smallint, null::int, null::timestamptz, null::jsonb, null::bytea, unnest(acks), null::timestamptz from l where pg_sequence_last_value('penstock."_emails.flags"'::pg_catalog.regclass) & 68719476736 = 0 or penstock._not_last(l.headers) or penstock._count_all(1, l.jobs, l.headers, cardinality(acks));
end if;
            if found then acks := null; end if;
        end if;
        if acks is not null then
            due := not found and acks[1] & 1 = 0 and flags & 4294967296 <> 0; acks := array(select penstock."_emails.ack"(acks)); -- of odd ones the look above has set found
            if due then -- there was no job: one may have waited for these
                return query select * from penstock."_emails.claim_scan"(n, until, lease, in_group, worker, acks, came);
            end if;
            return query select null::bigint, null::text, null::text, null::smallint, null::int, null::timestamptz, null::jsonb, null::bytea, a, null::timestamptz from unnest(acks) a;
        end if;
    end if;
    
    if pg_catalog.abs((pg_catalog.date_part('epoch'::pg_catalog.text, pg_catalog.clock_timestamp()) operator(pg_catalog.*) '1000')::bigint operator(pg_catalog.-) pg_catalog.pg_sequence_last_value('penstock."_emails.maintained"'::pg_catalog.regclass)) operator(pg_catalog.>=) 250
       and pg_catalog.current_setting('transaction_isolation') operator(pg_catalog.=) 'read committed' then
        insert into penstock._maintenance (queue, until) values (1, until);
    end if;
end $function$;

-- draw takes up to most jobs behind a position for claim, from the segment here. These are the jobs at the next positions that
-- were never locked: a session that locks one meanwhile is waited for. Above 1024 they are those of them that are free, and above
-- 2048 the first free ones, which waits for none. In a row of several a job has the place of its position: so only above 2048 one
-- may be further behind.
CREATE OR REPLACE FUNCTION penstock."_emails.draw"(here bigint, pos bigint, most integer)
 RETURNS SETOF penstock.emails
 LANGUAGE plpgsql
AS $function$ declare slot constant bigint := here % 1024; upto constant bigint := case when here < 2048 then pos + most else 9223372036854775807 end; begin
    if here < 1024 then
if here operator(pg_catalog.<) 1 then
        return query delete from penstock."_emails.0" t where t.group_key = '' and t.priority = 0 and t.seq > pos and t.seq <= pos + most and t.xmax = '0' and t.key is null returning t.*;
elsif here operator(pg_catalog.<) 2 then
        return query delete from penstock."_emails.1" t where t.group_key = '' and t.priority = 0 and t.seq > pos and t.seq <= pos + most and t.xmax = '0' and t.key is null returning t.*;
else
        return query delete from penstock."_emails.2" t where t.group_key = '' and t.priority = 0 and t.seq > pos and t.seq <= pos + most and t.xmax = '0' and t.key is null returning t.*;
end if;
    else
if slot operator(pg_catalog.<) 1 then
        return query delete from penstock."_emails.0" t where t.ctid = any (array(
            select t.ctid from penstock."_emails.0" t
             where t.group_key = '' and t.priority = 0 and t.seq > pos and t.seq <= upto and t.key is null
             order by t.seq limit most for update skip locked)) returning t.*;
elsif slot operator(pg_catalog.<) 2 then
        return query delete from penstock."_emails.1" t where t.ctid = any (array(
            select t.ctid from penstock."_emails.1" t
             where t.group_key = '' and t.priority = 0 and t.seq > pos and t.seq <= upto and t.key is null
             order by t.seq limit most for update skip locked)) returning t.*;
else
        return query delete from penstock."_emails.2" t where t.ctid = any (array(
            select t.ctid from penstock."_emails.2" t
             where t.group_key = '' and t.priority = 0 and t.seq > pos and t.seq <= upto and t.key is null
             order by t.seq limit most for update skip locked)) returning t.*;
end if;
    end if;
end $function$;

-- claim_scan is the slow path of claim: it takes what take finds by the skip map, or take_keyed by keys. Under limits it takes as
-- many jobs as _admit allows.
CREATE OR REPLACE FUNCTION penstock."_emails.claim_scan"(most integer, until timestamp with time zone, lease interval, in_group text, worker text, acks bigint[], came bigint)
 RETURNS SETOF penstock.leased_job
 LANGUAGE plpgsql
AS $function$ declare
    flags constant bigint := pg_sequence_last_value('penstock."_emails.flags"'::pg_catalog.regclass) & ~68719476736;
    due   boolean;
    got   int;
    base  bigint;
    granted record; -- see _admit
begin
    if flags & (4294967296 | 25769803776 | 103079215104) = 0 then
        if pg_current_xact_id_if_assigned() is not null then
            came := null; -- jobs that this transaction took may come back, and it does not see them
        elsif came is not null then -- from a backlog few go by the skip map, each over all that was taken since it was made
            due := pg_sequence_last_value('penstock."_emails.fast_path"'::pg_catalog.regclass) % 4096 < 2048 or random() < 0.05;
        end if;
        base := case when acks is not null and most between 8 and 255 and flags = 65536 then (nextval('penstock._lease_n'::pg_catalog.regclass) % 34359738368 << 28) | (floor(random() * 524288)::bigint << 9) | 1 end;
        if base is null then
            return query insert into penstock._lease as l (slot, queue, attempt, lease_until, id, created_at, priority, worker, group_key, key, headers, payload, failures, claimed_at)
            select (select pg_sequence_last_value('penstock._lease_slot'::pg_catalog.regclass) % 2), 1, t.attempt + 1, until, coalesce(t.id, t.seq), t.created_at, t.priority, coalesce(worker, ''), t.group_key, t.key, t.headers, t.payload, t.failures, until operator(pg_catalog.-) lease from penstock."_emails.take"(most, in_group, due, false, false) t
            returning l.id, l.key, l.group_key, l.priority, l.attempt, l.created_at, l.headers, l.payload, l.lease, l.lease_until;
        else
            return query with d as materialized (select t.*, row_number() over () as i from penstock."_emails.take"(most, in_group, due, false, false) t), -- A row for the jobs of d, each at its place in it, whose headers name the barrier that all of them hold. It is a row each if they
                    -- are few, or one is large, or if another flag was raised since they were read.
                    alike as (
                        select a.*, a.n >= 8 and a.n = cardinality(a.jobs) and pg_sequence_last_value('penstock."_emails.flags"'::pg_catalog.regclass) & ~68719476736 = 65536 as yes
                          from (select count(*) as n, array_agg(row(base + 2 * (t.i), coalesce(t.id, t.seq), t.created_at, t.attempt + 1, t.headers, t.payload, t.failures)::penstock._claimed)
                                                          filter (where octet_length(t.payload) <= 65536) as jobs,
                                       array_agg(t.headers ->> 'penstock-holds') filter (where (select pg_sequence_last_value('penstock."_emails.flags"'::pg_catalog.regclass) & 68719476736 <> 0)) as holds from d t) a),
                    one as (
                        insert into penstock._lease (slot, queue, lease, lease_until, claimed_at, worker, priority, group_key, done, headers, jobs)
                        select (select pg_sequence_last_value('penstock._lease_slot'::pg_catalog.regclass) % 2), 1, base, until, until - lease, coalesce(worker, ''), 0, in_group,
                               case when a.n = most then ~((~'0'::pg_catalog.bit(256)) << 256 - a.n::int >> 1) else ~(select bit_or(set_bit('0'::pg_catalog.bit(256), (t.i)::int, 1)) from d t) end, penstock._all_hold(a.holds), a.jobs
                          from alike a where a.yes),
                    each as (
                        insert into penstock._lease (slot, lease, queue, attempt, lease_until, id, created_at, priority, worker, group_key, key, headers, payload, failures, claimed_at)
                        select (select pg_sequence_last_value('penstock._lease_slot'::pg_catalog.regclass) % 2), base + 2 * (t.i), 1, t.attempt + 1, until, coalesce(t.id, t.seq), t.created_at, t.priority, coalesce(worker, ''), t.group_key, t.key, t.headers, t.payload, t.failures, until operator(pg_catalog.-) lease from d t where (select a.yes from alike a) is not true)
            select coalesce(t.id, t.seq), t.key, t.group_key, t.priority, t.attempt operator(pg_catalog.+) 1, t.created_at, t.headers, t.payload, base + 2 * t.i, until from d t;
        end if;
        get diagnostics got = row_count;
        if came is not null and got > 0 and got < most then
            perform setval('penstock."_emails.next"'::pg_catalog.regclass, greatest(came - 64, 0)), setval('penstock."_emails.fast_path"'::pg_catalog.regclass, (pg_catalog.date_part('epoch'::pg_catalog.text, pg_catalog.clock_timestamp()) operator(pg_catalog.*) '40')::bigint * 4096 + 2048 + pg_sequence_last_value('penstock."_emails.ring"'::pg_catalog.regclass) % 1024);
        end if;
    elsif flags & 25769803776 = 0 then
        return query insert into penstock._lease as l (queue, attempt, lease_until, id, created_at, priority, worker, group_key, key, headers, payload, failures, claimed_at)
        select 1, t.attempt + 1, until, coalesce(t.id, t.seq), t.created_at, t.priority, coalesce(worker, ''), t.group_key, t.key, t.headers, t.payload, t.failures, until operator(pg_catalog.-) lease from penstock."_emails.take_keyed"(most, in_group, true) t
        returning l.id, l.key, l.group_key, l.priority, l.attempt, l.created_at, l.headers, l.payload, l.lease, l.lease_until;
    else
        select * into granted from penstock._admit(1, in_group, most, acks);
        return query select null::bigint, null::text, null::text, null::smallint, null::int, null::timestamptz, null::jsonb, null::bytea, 0::bigint, null::timestamptz where granted.crowded and acks is not null;
        if granted.admitted > 0 then
            return query with l as (
                insert into penstock._lease as l (listed, queue, attempt, lease_until, id, created_at, priority, worker, group_key, key, headers, payload, failures, claimed_at)
                select granted.listed, 1, t.attempt + 1, until, coalesce(t.id, t.seq), t.created_at, t.priority, coalesce(worker, ''), t.group_key, t.key, t.headers, t.payload, t.failures, until operator(pg_catalog.-) lease from (
                    select * from penstock."_emails.take_keyed"(granted.admitted, in_group, true) where flags & (4294967296 | 103079215104) <> 0
                    union all select * from penstock."_emails.take"(granted.admitted, in_group, null, false, true) where flags & (4294967296 | 103079215104) = 0) t
                returning l.*)
            select l.id, l.key, l.group_key, l.priority, l.attempt, l.created_at, l.headers, l.payload, l.lease, l.lease_until from (select case when granted.listed is not null then penstock._admitted(granted.q, granted.g, granted.state, array_agg(l.lease), granted.listed) end from l) a cross join l;
        end if;
    end if;
end $function$;

-- take_keyed is take where jobs have keys or deadlines, or hold barriers. The transaction that takes a job of a key holds the
-- key's lock until its end, and has a lease from then on. So a statement that begins with the lock held sees whether one runs,
-- and whether one with a smaller id must still run. Jobs that must wait are moved to _scheduled, at the cost of one move each. Of
-- a priority it reads a thousand jobs from the first one on, and then four thousand from another place (_next_place), and on from
-- the first thousand behind the last.
CREATE OR REPLACE FUNCTION penstock."_emails.take_keyed"(n integer, in_group text, leasing boolean)
 RETURNS SETOF penstock.emails
 LANGUAGE plpgsql
AS $function$ declare
    flags  constant bigint := pg_sequence_last_value('penstock."_emails.flags"'::pg_catalog.regclass);
    bound  constant bigint := case when pg_current_xact_id_if_assigned() is null then coalesce(pg_sequence_last_value('penstock."_emails.seq"'::pg_catalog.regclass), 0) end; -- of the skip maps of all priorities
    m      penstock._skip_map;
    list   smallint[];  -- the segments it goes through
    at     int;         -- which of them
    pos    bigint; before bigint; upto bigint;
    begun  int; near bigint; edge bigint; drawn bigint; first boolean; -- see _next_place
    seen   int; mark int; -- jobs that were read, and then; a key that must wait counts as four more
    most   int;         -- jobs to read at once
    todo   int := n; got int;
    locked int := 0;    -- keys
    moved  int := 0; had int; -- jobs moved to _scheduled, and before
    ended  int := 0; gone int; -- jobs whose deadline had passed
    part   smallint; maps bigint; snap pg_snapshot; -- the segment of these, see _note_keys; skip maps up to that number were made before the snapshot
    ctids  tid[]; seqs bigint[]; ids bigint[]; keys text[]; -- of candidates
    chosen bigint[]; run bigint[]; -- places in these
    skip   text[] := '{}'; busy text[]; noted text[]; turns bigint[];
begin
    for p in -16 .. 15 loop
        continue when flags & (1::bigint << (16 + p)) = 0;
        m := penstock._newest_skip_map(1, in_group, p::smallint);
        if m.n is null or m.turn < 0 or random() * 64 < n
           or m.pending <> '{}' and exists (select from unnest(m.pending) x where pg_visible_in_snapshot(x, pg_current_snapshot()) or x >= pg_snapshot_xmax(pg_current_snapshot())) then
            m := penstock."_emails.skip_map"(in_group, p::smallint, bound);
        end if;
        if m.turn <> pg_sequence_last_value('penstock."_emails.ring"'::pg_catalog.regclass) then m.slots := penstock._listed_slots(1, false, 'penstock."_emails.ring"'::pg_catalog.regclass); end if;
        list := m.slots;
        at := 1;
        pos := -1;
        near := null;
        most := greatest(64, least(n, 1000));
        seen := -n;
        had := moved;
        while todo > 0 and seen < 5000 loop
            exit when at > cardinality(list) and (near is null or drawn = near);
            if at > cardinality(list) or near is null and seen >= 1000 then
                select * into at, pos, begun, near, edge, drawn, first
                  from penstock._next_place(false, 'penstock."_emails.seq"'::pg_catalog.regclass, 'penstock."_emails.next"'::pg_catalog.regclass, m.lo, m.hi, cardinality(list), seen >= mark + 64, at, pos, begun, near, edge, drawn, first);
                mark := seen;
            end if;
            select * into ctids, seqs, ids, keys, got, before, upto from penstock."_emails.candidates"(list[at], in_group, p, m.lo, m.hi, pos, most, skip);
            if got = 0 then
                at := at + 1; pos := -1;
                continue;
            end if;
            if flags & 34359738368 <> 0 and ended < 5000 then
                gone := penstock._end_late(1, 'emails', list[at], ctids, seqs);
                if gone > 0 then
                    ended := ended + gone;
                    most := least(2 * most, 500);
                    pos := before;
                    continue;
                end if;
            end if;
            select array_agg(c.i), array_agg(distinct c.key) filter (where c.key is not null) into chosen, busy
              from (select c.* from (select k.key, k.i, ids[k.i] as id from unnest(keys) with ordinality k(key, i) offset 0) c
                     where case when c.key is null then true
                                when locked >= 500 then false
                                when not leasing and penstock."_emails.busy"(c.key, c.id, m.slots) then false
                                else pg_try_advisory_xact_lock(hashtextextended(c.key, 1)) end limit todo) c;
            pos := coalesce(seqs[chosen[todo]], upto);
            locked := locked + coalesce(cardinality(busy), 0);
            seen := seen + got - 4 * cardinality(skip);
            skip := skip || array(select distinct c.key from unnest(keys) with ordinality c(key, i)
                                   where c.i <= coalesce(chosen[todo], cardinality(keys)) and c.key is not null and (chosen is null or c.i <> all (chosen))
                                     and (leasing or not false)); -- the last job of a key comes before the one that may run
            seen := seen + 4 * cardinality(skip);
            if chosen is null then
                most := least(2 * most, 500);
                continue;
            end if;
            run := chosen;
            if busy is not null then -- a new statement: it sees what ended before the locks were had
                noted := penstock._noted(1, busy);
                loop -- until no ring has turned meanwhile
                    turns := array[pg_sequence_last_value('penstock."_emails.ring"'::pg_catalog.regclass), pg_sequence_last_value('penstock._lease_slot'::pg_catalog.regclass), pg_sequence_last_value('penstock._scheduled_slot'::pg_catalog.regclass)];
                    maps := pg_sequence_last_value('penstock._skip_map_n'::pg_catalog.regclass); snap := pg_current_snapshot();
                    if m.turn <> turns[1] then m.turn := turns[1]; m.slots := penstock._listed_slots(1, false, 'penstock."_emails.ring"'::pg_catalog.regclass); end if;
                    -- A claim asks for the first job of each key that was read. If that has ended meanwhile, the others must not wait for it.
                    select array_agg(c.i order by c.i) into run
                      from (select *, min(id) over (partition by key) as first from unnest(ids, keys) with ordinality u(id, key, i) where key is null or key = any (busy)) c
                     where case when c.key is null or not leasing then c.i = any (chosen) else c.id = c.first end and (c.key is null or not penstock."_emails.busy"(c.key, c.id, m.slots, noted));
                    exit when turns = array[pg_sequence_last_value('penstock."_emails.ring"'::pg_catalog.regclass), pg_sequence_last_value('penstock._lease_slot'::pg_catalog.regclass), pg_sequence_last_value('penstock._scheduled_slot'::pg_catalog.regclass)];
                end loop;
                perform penstock._note_keys(1, in_group, p, maps, snap, array_agg(keys[i]), array_agg(ids[i])) from unnest(run) i where keys[i] is not null and hashint8(ids[i]) % 64 = 0 having count(*) > 0;
                -- Of a key that runs now the others stay where they are. Of one that cannot run, a
                -- claim moves them: a dequeue may be part of a long transaction, and should lock no
                -- key without need.
                busy := array(select unnest(busy) except select keys[i] from unnest(run) i);
                skip := skip || array(select distinct keys[i] from unnest(run) i where keys[i] is not null);
                if busy <> '{}' and leasing then
                    insert into penstock._scheduled (id, queue, attempt, due, created_at, priority, group_key, key, headers, payload, failures)
                    select coalesce(d.id, d.seq), 1, d.attempt, 'infinity', d.created_at, d.priority, d.group_key, d.key, d.headers, d.payload, d.failures
                      from penstock."_emails.pull"(list[at], array(select ctids[i] from unnest(keys) with ordinality u(key, i) where key = any (busy)), seqs) d;
                    get diagnostics got = row_count;
                    moved := moved + got;
                    most := case when 2 * got >= most then least(2 * most, 500) else greatest(most / 2, least(todo, 500), 8) end;
                    pos := case when moved <= 1000 and got > 0 then before else pos end;
                end if;
                skip := skip || case when leasing and moved <= 1000 then '{}' else busy end; -- the next call continues with it
            end if;
            if run is not null then
                return query select d.* from penstock."_emails.pull"(list[at], array(select ctids[i] from unnest(run) i), seqs) d
                 where leasing or (d.headers ->> 'penstock-holds') is null or penstock._count_holders(1, array[d.headers], -1, 0);
                get diagnostics got = row_count;
                todo := todo - got;
                if not leasing and busy is not null then
                    perform penstock._promote(1, array(select distinct keys[i] from unnest(run) i where keys[i] is not null));
                end if;
            end if;
        end loop;
        if moved - had >= 64 or ended >= 64 then -- much is gone: the next call makes a skip map, as turn shows
            insert into penstock._skip_map (queue, base, seen, xid, turn, priority, group_key, lo, hi, pending, slots)
            values (1, m.base, m.seen, m.xid, -1, p, in_group, m.lo, m.hi, m.pending, list);
        end if;
        exit when todo <= 0;
    end loop;
end $function$;

-- candidates reads up to most jobs of a segment behind a position. It returns those whose key is not in skip, and of all: how
-- many, and from where to where.
CREATE OR REPLACE FUNCTION penstock."_emails.candidates"(here integer, in_group text, p integer, lo bigint[], hi bigint[], pos bigint, most integer, skip text[], OUT ctids tid[], OUT seqs bigint[], OUT ids bigint[], OUT keys text[], OUT got integer, OUT before bigint, OUT upto bigint)
 RETURNS record
 LANGUAGE plpgsql
AS $function$ begin
if here operator(pg_catalog.<) 1 then
    select array_agg(v.ctid) filter (where v.free), array_agg(v.seq) filter (where v.free), array_agg(v.id) filter (where v.free), array_agg(v.key) filter (where v.free),
           count(*), case when false then max(v.seq) + 1 else min(v.seq) - 1 end, case when false then min(v.seq) else max(v.seq) end
      into ctids, seqs, ids, keys, got, before, upto
      from (select v.*, (v.key <> all (skip)) is not false as free from (select unnest(lo) as lo, unnest(hi) as hi) i cross join lateral (
                select t.ctid, t.seq, coalesce(t.id, t.seq) as id, t.key from penstock."_emails.0" t
                 where t.group_key = in_group and t.priority = p and t.seq >= i.lo and t.seq <= i.hi and t.seq > pos
                 order by t.seq asc limit most) v limit most) v;
elsif here operator(pg_catalog.<) 2 then
    select array_agg(v.ctid) filter (where v.free), array_agg(v.seq) filter (where v.free), array_agg(v.id) filter (where v.free), array_agg(v.key) filter (where v.free),
           count(*), case when false then max(v.seq) + 1 else min(v.seq) - 1 end, case when false then min(v.seq) else max(v.seq) end
      into ctids, seqs, ids, keys, got, before, upto
      from (select v.*, (v.key <> all (skip)) is not false as free from (select unnest(lo) as lo, unnest(hi) as hi) i cross join lateral (
                select t.ctid, t.seq, coalesce(t.id, t.seq) as id, t.key from penstock."_emails.1" t
                 where t.group_key = in_group and t.priority = p and t.seq >= i.lo and t.seq <= i.hi and t.seq > pos
                 order by t.seq asc limit most) v limit most) v;
else
    select array_agg(v.ctid) filter (where v.free), array_agg(v.seq) filter (where v.free), array_agg(v.id) filter (where v.free), array_agg(v.key) filter (where v.free),
           count(*), case when false then max(v.seq) + 1 else min(v.seq) - 1 end, case when false then min(v.seq) else max(v.seq) end
      into ctids, seqs, ids, keys, got, before, upto
      from (select v.*, (v.key <> all (skip)) is not false as free from (select unnest(lo) as lo, unnest(hi) as hi) i cross join lateral (
                select t.ctid, t.seq, coalesce(t.id, t.seq) as id, t.key from penstock."_emails.2" t
                 where t.group_key = in_group and t.priority = p and t.seq >= i.lo and t.seq <= i.hi and t.seq > pos
                 order by t.seq asc limit most) v limit most) v;
end if;
end $function$;

-- busy returns whether a job of a key must wait: one of the key runs, or one with a smaller id must still run. Jobs that are only
-- delayed do not count. It looks where jobs come from before it looks where they go to, so it sees one that moves meanwhile.
-- noted are the keys with a beginning, see _noted. A caller that gives them has the key's lock, and is about to lease the job, or
-- to move it.
CREATE OR REPLACE FUNCTION penstock."_emails.busy"(in_key text, in_id bigint, slots smallint[], noted text[] DEFAULT NULL::text[])
 RETURNS boolean
 LANGUAGE plpgsql
AS $function$ declare first bigint := 0; seen bigint := 0; ended bigint := 0; here smallint; leaf int; yes boolean; -- where to begin
begin
    if noted is null then
if pg_sequence_last_value('penstock._skip_map_slot'::pg_catalog.regclass) % 2 = 0 then
        yes := exists (select from penstock._skip_map_0 k where k.queue = -1 and k.group_key = in_key);
else
        yes := exists (select from penstock._skip_map_1 k where k.queue = -1 and k.group_key = in_key);
end if;
    end if;
    if yes or in_key = any (noted) then
        select * into first, seen, ended from penstock._where_to_begin(1, in_key, case when noted is not null then in_id end);
    end if;
    foreach leaf in array penstock._listed('penstock._lease_slot'::pg_catalog.regclass) loop
if leaf = 0 then
        yes := exists (select from penstock._lease_0 l where l.queue = 1 and l.key = in_key and l.lease > ended);
else
        yes := exists (select from penstock._lease_1 l where l.queue = 1 and l.key = in_key and l.lease > ended);
end if;
        if yes then return true; end if;
    end loop;
    foreach leaf in array penstock._listed('penstock._scheduled_slot'::pg_catalog.regclass) loop
if leaf = 0 then
        yes := exists (select from penstock._scheduled_0 l where l.queue = 1 and l.key = in_key and l.id >= first and l.id < in_id and (l.attempt <> 0 or l.due = 'infinity'));
else
        yes := exists (select from penstock._scheduled_1 l where l.queue = 1 and l.key = in_key and l.id >= first and l.id < in_id and (l.attempt <> 0 or l.due = 'infinity'));
end if;
        if yes then return true; end if;
    end loop;
    for i in 1 .. cardinality(slots) loop
        exit when yes; here := slots[i];
if here operator(pg_catalog.<) 1 then
        yes := exists (select from penstock."_emails.0" r where r.key = in_key and r.id >= first and r.id < in_id) or exists (select from penstock."_emails.0" r where r.key = in_key and r.seq > seen and r.id is not null and r.id + 0 < least(first, in_id))
            or exists (select from penstock."_emails.0" r where r.key = in_key and r.id is null and r.seq >= first and r.seq < in_id);
elsif here operator(pg_catalog.<) 2 then
        yes := exists (select from penstock."_emails.1" r where r.key = in_key and r.id >= first and r.id < in_id) or exists (select from penstock."_emails.1" r where r.key = in_key and r.seq > seen and r.id is not null and r.id + 0 < least(first, in_id))
            or exists (select from penstock."_emails.1" r where r.key = in_key and r.id is null and r.seq >= first and r.seq < in_id);
else
        yes := exists (select from penstock."_emails.2" r where r.key = in_key and r.id >= first and r.id < in_id) or exists (select from penstock."_emails.2" r where r.key = in_key and r.seq > seen and r.id is not null and r.id + 0 < least(first, in_id))
            or exists (select from penstock."_emails.2" r where r.key = in_key and r.id is null and r.seq >= first and r.seq < in_id);
end if;
    end loop;
    return yes;
end $function$;

-- pull deletes jobs at their places in a segment, but for those that another session has locked, and returns them in order.
CREATE OR REPLACE FUNCTION penstock."_emails.pull"(here integer, ctids tid[], seqs bigint[])
 RETURNS SETOF penstock.emails
 LANGUAGE plpgsql
AS $function$ begin
if here operator(pg_catalog.<) 1 then
    return query with d as (delete from penstock."_emails.0" t where t.ctid = any (array(
        select t.ctid from penstock."_emails.0" t where t.ctid = any (ctids) and t.seq = any (seqs) for update skip locked)) returning t.*)
    select * from d order by d.seq asc;
elsif here operator(pg_catalog.<) 2 then
    return query with d as (delete from penstock."_emails.1" t where t.ctid = any (array(
        select t.ctid from penstock."_emails.1" t where t.ctid = any (ctids) and t.seq = any (seqs) for update skip locked)) returning t.*)
    select * from d order by d.seq asc;
else
    return query with d as (delete from penstock."_emails.2" t where t.ctid = any (array(
        select t.ctid from penstock."_emails.2" t where t.ctid = any (ctids) and t.seq = any (seqs) for update skip locked)) returning t.*)
    select * from d order by d.seq asc;
end if;
end $function$;

-- ack ends jobs and returns the leases that were held. queue + 0 keeps the planner from the indexes that begin with the queue: a
-- lease is found by its number. Where the ring has turned since it was asked what is listed, a lease may have moved to a segment
-- that this call does not look into. A transaction that locks several leases does it in one order: by segment as listed, in each
-- the rows of several by number, and then the others by number. The settings below leave only an index scan, which takes an array
-- in the order of the index.
CREATE OR REPLACE FUNCTION penstock."_emails.ack"(in_leases bigint[])
 RETURNS SETOF bigint
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET enable_seqscan TO 'off'
 SET enable_bitmapscan TO 'off'
 SET jit TO 'off'
 SET plan_cache_mode TO 'force_generic_plan'
AS $function$ declare
    todo int := cardinality(in_leases);
    turn bigint;
    got  int;
    held bigint[];
    keys text[];
    leaf int := pg_sequence_last_value('penstock._lease_slot'::pg_catalog.regclass) % 2;
    odd  boolean := in_leases[1] & 1 = 1; -- mostly of a claim of several
    ties boolean; headers jsonb[]; -- jobs may hold barriers
begin
    if todo = 1 and not odd and pg_sequence_last_value('penstock."_emails.flags"'::pg_catalog.regclass) & (4294967296 | 68719476736) = 0 then -- few expressions, see dequeue_NAME
if leaf = 0 then
        return query delete from penstock._lease_0 l where l.lease = any (in_leases) and l.queue + 0 = 1 and l.jobs is null returning l.lease;
else
        return query delete from penstock._lease_1 l where l.lease = any (in_leases) and l.queue + 0 = 1 and l.jobs is null returning l.lease;
end if;
        if found then return; end if;
    elsif odd is not true and todo > 1 then
        odd := (select bool_or(a & 1 = 1) from unnest(in_leases) a);
    elsif odd and in_leases[todo] - in_leases[1] = 2 * todo - 2 then
        foreach leaf in array penstock._listed('penstock._lease_slot'::pg_catalog.regclass) loop
if leaf = 0 then
            return query with l as ( -- all of a claim, as it came; mostly that row is still as it was written
                delete from penstock._lease_0 l where l.lease = in_leases[1] - 2 and l.queue + 0 = 1
                   and l.done = ~((~'0'::pg_catalog.bit(256)) << 256 - cardinality(in_leases) >> 1) and in_leases = array(select generate_series(in_leases[1], in_leases[cardinality(in_leases)], 2))
                returning l.headers, l.jobs) select unnest(in_leases) from l where pg_sequence_last_value('penstock."_emails.flags"'::pg_catalog.regclass) & 68719476736 = 0 or penstock._count_all(1, l.jobs, l.headers, todo);
else
            return query with l as ( -- all of a claim, as it came; mostly that row is still as it was written
                delete from penstock._lease_1 l where l.lease = in_leases[1] - 2 and l.queue + 0 = 1
                   and l.done = ~((~'0'::pg_catalog.bit(256)) << 256 - cardinality(in_leases) >> 1) and in_leases = array(select generate_series(in_leases[1], in_leases[cardinality(in_leases)], 2))
                returning l.headers, l.jobs) select unnest(in_leases) from l where pg_sequence_last_value('penstock."_emails.flags"'::pg_catalog.regclass) & 68719476736 = 0 or penstock._count_all(1, l.jobs, l.headers, todo);
end if;
            if found then return; end if;
        end loop;
    end if;
    loop
        turn := pg_sequence_last_value('penstock._lease_slot'::pg_catalog.regclass);
        foreach leaf in array penstock._listed('penstock._lease_slot'::pg_catalog.regclass) loop
            if odd then
if leaf = 0 then
                return query with m as materialized (
                    select a & -511 as lease, bit_or(set_bit('0'::pg_catalog.bit(256), (a >> 1 & 255)::int, 1)) as places from unnest(in_leases) a where a & 1 = 1 group by 1 order by 1),
                o as materialized (
                    select l.lease, l.done, l.jobs, m.places & ~l.done as ended
                      from m cross join lateral (select * from penstock._lease_0 l where l.lease = m.lease and l.queue + 0 = 1 and l.jobs is not null for update) l),
                whole as (
                    delete from penstock._lease_0 l where l.lease = any (array(select o.lease from o where o.done | o.ended = ~'0'::pg_catalog.bit(256)))),
                part as (
                    update penstock._lease_0 l set done = l.done | o.ended from o -- not by =, for which the table might be joined as a whole
                     where l.lease >= o.lease and l.lease <= o.lease and o.done | o.ended <> ~'0'::pg_catalog.bit(256) and o.ended <> '0'::pg_catalog.bit(256)),
                c as materialized (select l.lease, l.ended from o l where pg_sequence_last_value('penstock."_emails.flags"'::pg_catalog.regclass) & 68719476736 = 0 or penstock._count_ends(1, l.jobs, l.ended))
                select c.lease + 2 * i from c cross join generate_series(1, 255) i where get_bit(c.ended, i) = 1;
else
                return query with m as materialized (
                    select a & -511 as lease, bit_or(set_bit('0'::pg_catalog.bit(256), (a >> 1 & 255)::int, 1)) as places from unnest(in_leases) a where a & 1 = 1 group by 1 order by 1),
                o as materialized (
                    select l.lease, l.done, l.jobs, m.places & ~l.done as ended
                      from m cross join lateral (select * from penstock._lease_1 l where l.lease = m.lease and l.queue + 0 = 1 and l.jobs is not null for update) l),
                whole as (
                    delete from penstock._lease_1 l where l.lease = any (array(select o.lease from o where o.done | o.ended = ~'0'::pg_catalog.bit(256)))),
                part as (
                    update penstock._lease_1 l set done = l.done | o.ended from o -- not by =, for which the table might be joined as a whole
                     where l.lease >= o.lease and l.lease <= o.lease and o.done | o.ended <> ~'0'::pg_catalog.bit(256) and o.ended <> '0'::pg_catalog.bit(256)),
                c as materialized (select l.lease, l.ended from o l where pg_sequence_last_value('penstock."_emails.flags"'::pg_catalog.regclass) & 68719476736 = 0 or penstock._count_ends(1, l.jobs, l.ended))
                select c.lease + 2 * i from c cross join generate_series(1, 255) i where get_bit(c.ended, i) = 1;
end if;
                get diagnostics got = row_count;
                todo := todo - got;
                exit when todo <= 0;
            end if;
            if pg_sequence_last_value('penstock."_emails.flags"'::pg_catalog.regclass) & (4294967296 | 68719476736) = 0 then
if leaf = 0 then
                return query delete from penstock._lease_0 l where l.lease = any (in_leases) and l.queue + 0 = 1 and l.jobs is null returning l.lease;
else
                return query delete from penstock._lease_1 l where l.lease = any (in_leases) and l.queue + 0 = 1 and l.jobs is null returning l.lease;
end if;
                get diagnostics got = row_count;
            else
                ties := pg_sequence_last_value('penstock."_emails.flags"'::pg_catalog.regclass) & 68719476736 <> 0;
if leaf = 0 then
                with d as (delete from penstock._lease_0 l where l.lease = any (in_leases) and l.queue + 0 = 1 and l.jobs is null returning l.lease, l.key, l.headers)
                select array_agg(d.lease), array_agg(distinct d.key) filter (where d.key is not null), count(*), array_agg(d.headers) filter (where ties) into held, keys, got, headers from d;
else
                with d as (delete from penstock._lease_1 l where l.lease = any (in_leases) and l.queue + 0 = 1 and l.jobs is null returning l.lease, l.key, l.headers)
                select array_agg(d.lease), array_agg(distinct d.key) filter (where d.key is not null), count(*), array_agg(d.headers) filter (where ties) into held, keys, got, headers from d;
end if;
                perform penstock._count_holders(1, headers, -1, 0) where ties;
                if keys is not null then perform penstock._promote(1, keys); end if;
                return query select unnest(held);
            end if;
            todo := todo - got;
            exit when todo <= 0;
        end loop;
        exit when todo <= 0 or turn = pg_sequence_last_value('penstock._lease_slot'::pg_catalog.regclass);
    end loop;
    if todo > 0 then perform penstock._not_moved(1, in_leases); end if;
end $function$;

-- extend makes leases end by from now, and returns those that were still held, with their new end.
CREATE OR REPLACE FUNCTION penstock."_emails.extend"(leases bigint[], by interval)
 RETURNS TABLE(lease bigint, until timestamp with time zone)
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$ begin return query select * from penstock._extend(1, leases, by); end $function$;

-- report notes a job's report, and returns when its lease ends, null if that is lost.
CREATE OR REPLACE FUNCTION penstock."_emails.report"(lease bigint, report jsonb)
 RETURNS timestamp with time zone
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$ begin return penstock._report(1, lease, report); end $function$;

-- release gives jobs back, to run again after a while, and returns the leases that were still held.
CREATE OR REPLACE FUNCTION penstock."_emails.release"(leases bigint[], after interval)
 RETURNS SETOF bigint
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$ begin return query select penstock._release(1, leases, after); end $function$;

-- fail ends an attempt that failed, see _fail.
CREATE OR REPLACE FUNCTION penstock."_emails.fail"(lease bigint, after interval, error text, final boolean)
 RETURNS timestamp with time zone
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$ begin return penstock._fail(1, lease, after, error, final); end $function$;

-- ready lists up to most groups that have jobs in the ring, of in_groups or, if that is null, of all. They come in the order of
-- their bytes, those behind a group first. claiming: for a caller that is going to claim; a pause and limits count then, and one
-- with a weight comes as many times. It locks nothing, and goes from group to group by skip maps and the index. Of a group with a
-- map it reads only the ranges in which jobs may be, so it steps over nothing that was taken. Once older segments have enough
-- groups, it looks in newer ones for those before the last of these, not for all.
CREATE OR REPLACE FUNCTION penstock."_emails.ready"(in_groups text[], behind text, most integer, claiming boolean DEFAULT true)
 RETURNS SETOF text
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET enable_seqscan TO 'off'
 SET enable_bitmapscan TO 'off'
 SET enable_sort TO 'off'
 SET enable_hashjoin TO 'off'
 SET enable_mergejoin TO 'off'
 SET jit TO 'off'
 SET plan_cache_mode TO 'force_generic_plan'
AS $function$ declare
    flags      constant bigint := pg_sequence_last_value('penstock."_emails.flags"'::pg_catalog.regclass);
    priorities constant smallint[] := array(select p from generate_series(-16, 15) p where flags & (1::bigint << (16 + p)) <> 0);
    listed     constant text[] := array(select distinct x collate "C" from unnest(in_groups) x where x is not null order by 1);
    skip_map_slot  constant smallint := pg_sequence_last_value('penstock._skip_map_slot'::pg_catalog.regclass) % 2;
    found      text[] := '{}';
    watched    boolean := false; slots smallint[]; here smallint; upto text; last text; part text[];
begin
    if (most between 1 and 10000) is not true then
        raise exception 'most is %, expected 1 to 10000', coalesce(most::text, 'null') using errcode = '22023', hint = 'call it again for those behind the last one';
    end if;
    if claiming then
        
    if pg_catalog.abs((pg_catalog.date_part('epoch'::pg_catalog.text, pg_catalog.clock_timestamp()) operator(pg_catalog.*) '1000')::bigint operator(pg_catalog.-) pg_catalog.pg_sequence_last_value('penstock."_emails.maintained"'::pg_catalog.regclass)) operator(pg_catalog.>=) 250
       and pg_catalog.current_setting('transaction_isolation') operator(pg_catalog.=) 'read committed' then
        insert into penstock._maintenance (queue) values (1);
    end if;
        watched := flags & 25769803776 <> 0;
        if watched and not penstock._queue_open(1) then return; end if;
    end if;
    slots := penstock._listed_slots(1, false, 'penstock."_emails.ring"'::pg_catalog.regclass);
    foreach upto in array array[null, behind] loop -- behind it, and then from the first one up to it
        part := '{}';
        for i in 1 .. cardinality(slots) loop
            here := slots[i]; last := case when cardinality(part) >= most - cardinality(found) then (array(select distinct x collate "C" from unnest(part) x order by 1))[most - cardinality(found)] end;
if here operator(pg_catalog.<) 1 then
            part := part || array(
                with recursive g(group_key, mapped) as (
                    select x.group_key collate "C", true
                      from unnest(case when in_groups is not null then listed when upto is null then array[behind] else array[''] end) x(group_key)
                    union all
                    select coalesce(b.group_key, m.group_key), b.group_key is null
                      from g left join lateral (select m.group_key from penstock._skip_map m
                         where m.slot = skip_map_slot and m.queue = 1 and m.group_key > g.group_key order by m.group_key limit 1) m on true
                     cross join lateral (select case when m.group_key is null
                        then (select t.group_key from penstock."_emails.0" t where t.group_key > g.group_key order by t.group_key limit 1)
                        else (select t.group_key from penstock."_emails.0" t where t.group_key > g.group_key and t.group_key < m.group_key order by t.group_key limit 1) end) b(group_key)
                     where in_groups is null and (upto is null or g.group_key < upto) and (last is null or g.group_key < last) and coalesce(b.group_key, m.group_key) is not null)
                select g.group_key from g where case when upto is null then g.group_key > behind else g.group_key <= upto end
                   and (last is null or g.group_key < last) and case when g.mapped and not exists (
                        select from unnest(priorities) p(priority) left join lateral (select k.lo, k.hi, k.pending from penstock._skip_map k
                             where k.slot = skip_map_slot and k.queue = 1 and k.group_key = g.group_key and k.priority = p.priority order by k.n desc limit 1) k on true
                         -- what committed late, wherever it is; of a transaction that wrote much a claim may look
                         where exists (select from unnest(k.pending) x cross join lateral (
                                    select count(*) = 100 or bool_or(w.group_key = g.group_key and w.priority = p.priority) as late
                                      from (select t.group_key, t.priority from penstock."_emails.0" t where t.xid = x limit 100) w) w
                                 where pg_visible_in_snapshot(x, pg_current_snapshot()) and w.late)
                            or exists (select from unnest(coalesce(k.lo, '{0}'), coalesce(k.hi, '{9223372036854775806}')) r(lo, hi) cross join lateral (
                                select from penstock."_emails.0" t where t.group_key = g.group_key and t.priority = p.priority and t.seq >= r.lo and t.seq <= r.hi limit 1) t)) then false
                       when watched then penstock._group_open(1, g.group_key) else true end limit most);
elsif here operator(pg_catalog.<) 2 then
            part := part || array(
                with recursive g(group_key, mapped) as (
                    select x.group_key collate "C", true
                      from unnest(case when in_groups is not null then listed when upto is null then array[behind] else array[''] end) x(group_key)
                    union all
                    select coalesce(b.group_key, m.group_key), b.group_key is null
                      from g left join lateral (select m.group_key from penstock._skip_map m
                         where m.slot = skip_map_slot and m.queue = 1 and m.group_key > g.group_key order by m.group_key limit 1) m on true
                     cross join lateral (select case when m.group_key is null
                        then (select t.group_key from penstock."_emails.1" t where t.group_key > g.group_key order by t.group_key limit 1)
                        else (select t.group_key from penstock."_emails.1" t where t.group_key > g.group_key and t.group_key < m.group_key order by t.group_key limit 1) end) b(group_key)
                     where in_groups is null and (upto is null or g.group_key < upto) and (last is null or g.group_key < last) and coalesce(b.group_key, m.group_key) is not null)
                select g.group_key from g where case when upto is null then g.group_key > behind else g.group_key <= upto end
                   and (last is null or g.group_key < last) and case when g.mapped and not exists (
                        select from unnest(priorities) p(priority) left join lateral (select k.lo, k.hi, k.pending from penstock._skip_map k
                             where k.slot = skip_map_slot and k.queue = 1 and k.group_key = g.group_key and k.priority = p.priority order by k.n desc limit 1) k on true
                         -- what committed late, wherever it is; of a transaction that wrote much a claim may look
                         where exists (select from unnest(k.pending) x cross join lateral (
                                    select count(*) = 100 or bool_or(w.group_key = g.group_key and w.priority = p.priority) as late
                                      from (select t.group_key, t.priority from penstock."_emails.1" t where t.xid = x limit 100) w) w
                                 where pg_visible_in_snapshot(x, pg_current_snapshot()) and w.late)
                            or exists (select from unnest(coalesce(k.lo, '{0}'), coalesce(k.hi, '{9223372036854775806}')) r(lo, hi) cross join lateral (
                                select from penstock."_emails.1" t where t.group_key = g.group_key and t.priority = p.priority and t.seq >= r.lo and t.seq <= r.hi limit 1) t)) then false
                       when watched then penstock._group_open(1, g.group_key) else true end limit most);
else
            part := part || array(
                with recursive g(group_key, mapped) as (
                    select x.group_key collate "C", true
                      from unnest(case when in_groups is not null then listed when upto is null then array[behind] else array[''] end) x(group_key)
                    union all
                    select coalesce(b.group_key, m.group_key), b.group_key is null
                      from g left join lateral (select m.group_key from penstock._skip_map m
                         where m.slot = skip_map_slot and m.queue = 1 and m.group_key > g.group_key order by m.group_key limit 1) m on true
                     cross join lateral (select case when m.group_key is null
                        then (select t.group_key from penstock."_emails.2" t where t.group_key > g.group_key order by t.group_key limit 1)
                        else (select t.group_key from penstock."_emails.2" t where t.group_key > g.group_key and t.group_key < m.group_key order by t.group_key limit 1) end) b(group_key)
                     where in_groups is null and (upto is null or g.group_key < upto) and (last is null or g.group_key < last) and coalesce(b.group_key, m.group_key) is not null)
                select g.group_key from g where case when upto is null then g.group_key > behind else g.group_key <= upto end
                   and (last is null or g.group_key < last) and case when g.mapped and not exists (
                        select from unnest(priorities) p(priority) left join lateral (select k.lo, k.hi, k.pending from penstock._skip_map k
                             where k.slot = skip_map_slot and k.queue = 1 and k.group_key = g.group_key and k.priority = p.priority order by k.n desc limit 1) k on true
                         -- what committed late, wherever it is; of a transaction that wrote much a claim may look
                         where exists (select from unnest(k.pending) x cross join lateral (
                                    select count(*) = 100 or bool_or(w.group_key = g.group_key and w.priority = p.priority) as late
                                      from (select t.group_key, t.priority from penstock."_emails.2" t where t.xid = x limit 100) w) w
                                 where pg_visible_in_snapshot(x, pg_current_snapshot()) and w.late)
                            or exists (select from unnest(coalesce(k.lo, '{0}'), coalesce(k.hi, '{9223372036854775806}')) r(lo, hi) cross join lateral (
                                select from penstock."_emails.2" t where t.group_key = g.group_key and t.priority = p.priority and t.seq >= r.lo and t.seq <= r.hi limit 1) t)) then false
                       when watched then penstock._group_open(1, g.group_key) else true end limit most);
end if;
        end loop;
        found := found || array(select distinct x collate "C" from unnest(part) x order by 1 limit most - cardinality(found));
        exit when cardinality(found) >= most;
    end loop;
    return query select unnest(case when watched then array(select penstock._weighted(1, found)) else found end);
end $function$;

-- maintain does the maintenance of the queue at once, see _maintain.
CREATE OR REPLACE FUNCTION penstock."_emails.maintain"()
 RETURNS void
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$ begin perform penstock._maintain(1, true); end $function$;

-- pause notes in the queue's row that claims and dequeues return no job, or ends that. It locks the row until the transaction
-- ends.
CREATE OR REPLACE FUNCTION penstock."_emails.pause"(paused boolean)
 RETURNS void
 LANGUAGE sql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$ update penstock._queue set paused = $1 where id = 1; select penstock._watch(1) $function$;

-- cancel removes jobs wherever they are, see _cancel. A role that may call it looks after the queue: the policy of _dead_job asks
-- for that.
CREATE OR REPLACE FUNCTION penstock."_emails.cancel"(ids bigint[])
 RETURNS integer
 LANGUAGE sql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$ select penstock._cancel(1, ids) $function$;

-- retry_dead has dead letters run again, and returns how many.
CREATE OR REPLACE FUNCTION penstock."_emails.retry_dead"(ids bigint[])
 RETURNS bigint
 LANGUAGE sql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$ select penstock._retry_dead_jobs(1, ids) $function$;

-- discard_dead removes dead letters, and returns how many.
CREATE OR REPLACE FUNCTION penstock."_emails.discard_dead"(ids bigint[])
 RETURNS bigint
 LANGUAGE sql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
    with d as (delete from penstock._dead_job where queue = 1 and id = any (ids) returning headers)
    select count(*) from d having penstock._count_holders(1, array_agg(d.headers), 0, -1)
$function$;

-- count counts jobs by where they are, see _count.
CREATE OR REPLACE FUNCTION penstock."_emails.count"(most integer)
 RETURNS bigint[]
 LANGUAGE sql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$ select penstock._count(1, most) $function$;

-- count_groups counts the jobs of each group, see _count_groups: of what is leased, is to come later or is dead 10,000 each.
CREATE OR REPLACE FUNCTION penstock."_emails.count_groups"(after text, most integer)
 RETURNS TABLE(group_key text, ready bigint, running bigint, delayed bigint, waiting bigint, dead bigint, oldest bigint, more boolean)
 LANGUAGE sql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
    select g.group_key, g.ready, g.running, g.delayed, g.waiting, g.dead, g.oldest, g.more or g.cut from penstock._count_groups(1, after, most, 10000) g order by g.group_key
$function$;

-- done_jobs lists done jobs that are kept, see _done_jobs.
CREATE OR REPLACE FUNCTION penstock."_emails.done_jobs"(most integer, before text, ids bigint[])
 RETURNS jsonb
 LANGUAGE sql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$ select penstock._done_jobs(1, most, before, ids) $function$;

-- find returns where a job is, see _find_job.
CREATE OR REPLACE FUNCTION penstock."_emails.find"(id bigint)
 RETURNS jsonb
 LANGUAGE sql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$ select penstock._find_job(1, id) $function$;

-- set_group replaces the policy of a group, see _set_group.
CREATE OR REPLACE FUNCTION penstock."_emails.set_group"(group_key text, max_running integer, rate integer, per interval, burst integer, weight integer)
 RETURNS void
 LANGUAGE sql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$ select penstock._set_group(1, group_key, max_running, rate, per, burst, weight) $function$;

-- hold_group holds a group, or releases it.
CREATE OR REPLACE FUNCTION penstock."_emails.hold_group"(group_key text, hold_for interval, reason text)
 RETURNS void
 LANGUAGE sql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$ select penstock._hold_group(1, group_key, hold_for, reason) $function$;

-- group_limits lists limits of groups, see _group_limits.
CREATE OR REPLACE FUNCTION penstock."_emails.group_limits"(group_keys text[], after text, most integer)
 RETURNS TABLE(group_key text, max_running integer, rate integer, per interval, burst integer, weight integer, tokens integer, held_until timestamp with time zone, reason text)
 LANGUAGE sql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$ select * from penstock._group_limits(1, group_keys, after, most) $function$;
