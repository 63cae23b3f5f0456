-- The queue kept, which is as mails is, but keeps what is done: what is different there. As it stands in the database, with the comments of store/postgres/schema; TestGolden compares it, and -update writes it.

create table penstock."_kept.done" (
    slot smallint not null default ((pg_sequence_last_value('penstock."_kept.done_turn"'::regclass) % (8)::bigint))::smallint,
    finished_at timestamp with time zone not null default clock_timestamp(),
    claimed_at timestamp with time zone,
    worker text not null,
    group_key text not null,
    priority smallint not null,
    key text,
    id bigint,
    attempt integer,
    created_at timestamp with time zone,
    failures jsonb,
    report jsonb,
    jobs bigint[],
    attempts integer[],
    created timestamp with time zone[],
    failed jsonb[]
) partition by LIST (slot);
alter table penstock."_kept.done" alter column jobs set storage plain;
alter table penstock."_kept.done" alter column attempts set storage plain;
alter table penstock."_kept.done" alter column created set storage plain;

create table penstock."_kept.done_0" partition of penstock."_kept.done" FOR VALUES IN ('0') with (autovacuum_enabled=false, toast.autovacuum_enabled=false);

create table penstock."_kept.done_1" partition of penstock."_kept.done" FOR VALUES IN ('1') with (autovacuum_enabled=false, toast.autovacuum_enabled=false);

create table penstock."_kept.done_2" partition of penstock."_kept.done" FOR VALUES IN ('2') with (autovacuum_enabled=false, toast.autovacuum_enabled=false);

create table penstock."_kept.done_3" partition of penstock."_kept.done" FOR VALUES IN ('3') with (autovacuum_enabled=false, toast.autovacuum_enabled=false);

create table penstock."_kept.done_4" partition of penstock."_kept.done" FOR VALUES IN ('4') with (autovacuum_enabled=false, toast.autovacuum_enabled=false);

create table penstock."_kept.done_5" partition of penstock."_kept.done" FOR VALUES IN ('5') with (autovacuum_enabled=false, toast.autovacuum_enabled=false);

create sequence penstock."_kept.done_turn" minvalue 0; -- holds a time

-- claim takes jobs from the ring and leases them. Then it ends the jobs of acks, as ack does: what a worker has done and what it
-- wants next go with one call. Of acks those come back that were held, behind the jobs, as rows with nothing but a lease. They
-- are ended last, because that draws an xid, and a skip map made after it bounds nothing (see skip_map). From a backlog it takes
-- what comes behind the position in the registers, if nobody has ever locked it, and moves that on; here, because a function that
-- returns rows to another has each copied once more, and costs a claim of one job half. It looks behind the position five times a
-- second, not forty as scan: whoever finds nothing there takes three to five times as long. To lock each job before it is deleted
-- takes as long again as all else: another claim that has drawn the same position, which is rare, waits for this one to commit.
-- If it is to end jobs, if only none ('{}'), jobs from a backlog share a row: a copy of each with its entries in indexes costs
-- most of a claim. Whoever acks one of them waits until a transaction that acks another has ended. ack and _part know such rows.
-- While few jobs wait it has another fast path, one statement from where registers say, as dequeue_NAME has
-- (docs/decisions/0008). A claim that went by the skip map and left nothing sets them, to 64 seqs before the latest, so that what
-- is in flight now will be found. They hold for these 25 ms and the next: there is nobody else who would move them on meanwhile.
-- There are no keys then, and what is to be ended mostly has its leases in the same table: without a call of ack, which opens
-- both, that costs half.
CREATE OR REPLACE FUNCTION penstock."_kept.claim"(n integer, lease interval, in_group text, worker text, acks bigint[] DEFAULT NULL::bigint[])
 RETURNS SETOF penstock.leased_job
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET enable_seqscan TO 'off'
 SET enable_bitmapscan TO 'off'
 SET jit TO 'off'
 SET plan_cache_mode TO 'force_generic_plan'
AS $function$
declare
    flags constant bigint := pg_sequence_last_value('penstock."_kept.flags"'::pg_catalog.regclass);
    until constant timestamptz := clock_timestamp() + least(lease, interval '1000 years'); -- more is refused
    came  bigint := case when flags = 65536 and in_group = '' and not false then coalesce(pg_sequence_last_value('penstock."_kept.seq"'::pg_catalog.regclass), 0) end;
    path  constant bigint := case when came - pg_sequence_last_value('penstock."_kept.next"'::pg_catalog.regclass) <= 512
                                       and pg_sequence_last_value('penstock."_kept.fast_path"'::pg_catalog.regclass) - (pg_catalog.date_part('epoch'::pg_catalog.text, pg_catalog.clock_timestamp()) operator(pg_catalog.*) '40')::bigint * 4096 - 2048 - pg_sequence_last_value('penstock."_kept.ring"'::pg_catalog.regclass) % 1024 in (0, -4096)
                                  then pg_sequence_last_value('penstock."_kept.ring"'::pg_catalog.regclass) % 1024 end;
    leaf  int := pg_sequence_last_value('penstock._lease_slot'::pg_catalog.regclass) % 2;
    due   boolean;
    drawn bigint;
    pos   bigint;
    got   int;
    most  int;
    base  bigint;
    empty int := 0;
begin
    if (n between 1 and 10000 and lease > interval '0' and lease <= interval '1000 years' and coalesce(octet_length(worker), 0) <= 256) is not true then
        if (n between 1 and 10000) is not true then
            raise exception 'n is %, expected 1 to 10000', coalesce(n::text, 'null') using errcode = '22023', hint = 'call claim again for more';
        elsif octet_length(worker) > 256 then
            raise exception 'the worker has % bytes, the limit is 256', octet_length(worker) using errcode = '23514', hint = 'use a shorter name';
        end if;
        raise exception 'the lease is %, expected more than nothing and at most 1000 years', coalesce(lease::text, 'null')
        using errcode = '22023', hint = 'give the time a job takes and some more, for example interval ''30 s''';
    end if;
    if path is null and came is not null then -- from a backlog
        drawn := pg_sequence_last_value('penstock."_kept.fast_path"'::pg_catalog.regclass) - ((pg_catalog.date_part('epoch'::pg_catalog.text, pg_catalog.clock_timestamp()) operator(pg_catalog.*) '40')::bigint - 7) * 4096;
        if drawn between 0 and 32767 and drawn % 4096 < 2048 then
            if drawn % 4096 < 1024 then -- see penstock."_kept.scan"
                drawn := drawn + 1024;
                perform setval('penstock."_kept.fast_path"'::pg_catalog.regclass, ((pg_catalog.date_part('epoch'::pg_catalog.text, pg_catalog.clock_timestamp()) operator(pg_catalog.*) '40')::bigint - 7) * 4096 + drawn);
            end if;
            drawn := drawn % 1024 + 1024;
            loop
                pos := pg_sequence_last_value('penstock."_kept.next"'::pg_catalog.regclass);
                most := least(n, came - pos, case when acks is null then 10000 else 255 end);
                exit when (most > 0) is not true;
                -- Of one nobody else draws the same, and mostly no WAL is written. An assignment costs a third of a PERFORM.
                pos := case when most = 1 then nextval('penstock."_kept.next"'::pg_catalog.regclass) - 1 else setval('penstock."_kept.next"'::pg_catalog.regclass, pos + most) - most end;
                if acks is null or most < 8 then
if drawn operator(pg_catalog.<) 1025 then
if leaf = 0 then
                    return query
                    with d as (delete from penstock."_kept.0" t where t.group_key = '' and t.priority = 0 and t.seq > pos and t.seq <= pos + most and t.xmax = '0' and t.key is null returning t.*)
                    insert into penstock._lease_0 as l (slot, queue, attempt, lease_until, id, created_at, priority, worker, group_key, key, headers, payload, failures, claimed_at)
                    select leaf, 3, t.attempt + 1, until, coalesce(t.id, t.seq), t.created_at, t.priority, coalesce(worker, ''), t.group_key, t.key, t.headers, t.payload, t.failures, until operator(pg_catalog.-) lease from d t
                    returning l.id, l.key, l.group_key, l.priority, l.attempt, l.created_at, l.headers, l.payload, l.lease, l.lease_until;
else
                    return query
                    with d as (delete from penstock."_kept.0" t where t.group_key = '' and t.priority = 0 and t.seq > pos and t.seq <= pos + most and t.xmax = '0' and t.key is null returning t.*)
                    insert into penstock._lease_1 as l (slot, queue, attempt, lease_until, id, created_at, priority, worker, group_key, key, headers, payload, failures, claimed_at)
                    select leaf, 3, t.attempt + 1, until, coalesce(t.id, t.seq), t.created_at, t.priority, coalesce(worker, ''), t.group_key, t.key, t.headers, t.payload, t.failures, until operator(pg_catalog.-) lease from d t
                    returning l.id, l.key, l.group_key, l.priority, l.attempt, l.created_at, l.headers, l.payload, l.lease, l.lease_until;
end if;

else
if drawn operator(pg_catalog.<) 1026 then
if leaf = 0 then
                    return query
                    with d as (delete from penstock."_kept.1" t where t.group_key = '' and t.priority = 0 and t.seq > pos and t.seq <= pos + most and t.xmax = '0' and t.key is null returning t.*)
                    insert into penstock._lease_0 as l (slot, queue, attempt, lease_until, id, created_at, priority, worker, group_key, key, headers, payload, failures, claimed_at)
                    select leaf, 3, t.attempt + 1, until, coalesce(t.id, t.seq), t.created_at, t.priority, coalesce(worker, ''), t.group_key, t.key, t.headers, t.payload, t.failures, until operator(pg_catalog.-) lease from d t
                    returning l.id, l.key, l.group_key, l.priority, l.attempt, l.created_at, l.headers, l.payload, l.lease, l.lease_until;
else
                    return query
                    with d as (delete from penstock."_kept.1" t where t.group_key = '' and t.priority = 0 and t.seq > pos and t.seq <= pos + most and t.xmax = '0' and t.key is null returning t.*)
                    insert into penstock._lease_1 as l (slot, queue, attempt, lease_until, id, created_at, priority, worker, group_key, key, headers, payload, failures, claimed_at)
                    select leaf, 3, t.attempt + 1, until, coalesce(t.id, t.seq), t.created_at, t.priority, coalesce(worker, ''), t.group_key, t.key, t.headers, t.payload, t.failures, until operator(pg_catalog.-) lease from d t
                    returning l.id, l.key, l.group_key, l.priority, l.attempt, l.created_at, l.headers, l.payload, l.lease, l.lease_until;
end if;

else
if leaf = 0 then
                    return query
                    with d as (delete from penstock."_kept.2" t where t.group_key = '' and t.priority = 0 and t.seq > pos and t.seq <= pos + most and t.xmax = '0' and t.key is null returning t.*)
                    insert into penstock._lease_0 as l (slot, queue, attempt, lease_until, id, created_at, priority, worker, group_key, key, headers, payload, failures, claimed_at)
                    select leaf, 3, t.attempt + 1, until, coalesce(t.id, t.seq), t.created_at, t.priority, coalesce(worker, ''), t.group_key, t.key, t.headers, t.payload, t.failures, until operator(pg_catalog.-) lease from d t
                    returning l.id, l.key, l.group_key, l.priority, l.attempt, l.created_at, l.headers, l.payload, l.lease, l.lease_until;
else
                    return query
                    with d as (delete from penstock."_kept.2" t where t.group_key = '' and t.priority = 0 and t.seq > pos and t.seq <= pos + most and t.xmax = '0' and t.key is null returning t.*)
                    insert into penstock._lease_1 as l (slot, queue, attempt, lease_until, id, created_at, priority, worker, group_key, key, headers, payload, failures, claimed_at)
                    select leaf, 3, t.attempt + 1, until, coalesce(t.id, t.seq), t.created_at, t.priority, coalesce(worker, ''), t.group_key, t.key, t.headers, t.payload, t.failures, until operator(pg_catalog.-) lease from d t
                    returning l.id, l.key, l.group_key, l.priority, l.attempt, l.created_at, l.headers, l.payload, l.lease, l.lease_until;
end if;

end if;
end if;
                else
                    base := (nextval('penstock._lease_n'::pg_catalog.regclass) % 34359738368 << 28) | (floor(random() * 524288)::bigint << 9) | 1;
if drawn operator(pg_catalog.<) 1025 then
if leaf = 0 then
                    return query
                    with d as (delete from penstock."_kept.0" t where t.group_key = '' and t.priority = 0 and t.seq > pos and t.seq <= pos + most and t.xmax = '0' and t.key is null returning t.*, t.seq - pos as i), -- a row for the jobs of d, in place i each; a row each if they are few, or one is large, or if keys and priorities
                        -- have come since the flags were read
                        alike as (
                            select count(*) as n, max(t.i) as last, count(*) < 8 or bool_or(t.key is not null or t.priority <> 0 or octet_length(t.payload) > 65536) as apart,
                                   array_agg(row(base + 2 * t.i, coalesce(t.id, t.seq), t.created_at, t.attempt + 1, t.headers, t.payload, t.failures)::penstock._claimed)
                                       filter (where octet_length(t.payload) <= 65536) as jobs
                              from d t),
                        one as (
                            insert into penstock._lease_0 (slot, queue, lease, lease_until, claimed_at, worker, priority, group_key, done, jobs)
                            select leaf, 3, base, until, until - lease,  coalesce(worker, ''), 0, in_group,
                                   case when a.n = a.last then ~((~'0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000'::pg_catalog.bit(256)) << 256 - a.n::int >> 1) else ~(select bit_or(set_bit('0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000'::pg_catalog.bit(256), x.i::int, 1)) from d x) end, a.jobs
                              from alike a where not a.apart),
                        each as (
                            insert into penstock._lease_0 (slot, lease, queue, attempt, lease_until, id, created_at, priority, worker, group_key, key, headers, payload, failures, claimed_at)
                            select leaf, base + 2 * t.i, 3, t.attempt + 1, until, coalesce(t.id, t.seq), t.created_at, t.priority, coalesce(worker, ''), t.group_key, t.key, t.headers, t.payload, t.failures, until operator(pg_catalog.-) lease from d t where (select a.apart from alike a))
                    select coalesce(t.id, t.seq), t.key, t.group_key, t.priority, t.attempt operator(pg_catalog.+) 1, t.created_at, t.headers, t.payload, base + 2 * t.i, until from d t;
else
                    return query
                    with d as (delete from penstock."_kept.0" t where t.group_key = '' and t.priority = 0 and t.seq > pos and t.seq <= pos + most and t.xmax = '0' and t.key is null returning t.*, t.seq - pos as i), -- a row for the jobs of d, in place i each; a row each if they are few, or one is large, or if keys and priorities
                        -- have come since the flags were read
                        alike as (
                            select count(*) as n, max(t.i) as last, count(*) < 8 or bool_or(t.key is not null or t.priority <> 0 or octet_length(t.payload) > 65536) as apart,
                                   array_agg(row(base + 2 * t.i, coalesce(t.id, t.seq), t.created_at, t.attempt + 1, t.headers, t.payload, t.failures)::penstock._claimed)
                                       filter (where octet_length(t.payload) <= 65536) as jobs
                              from d t),
                        one as (
                            insert into penstock._lease_1 (slot, queue, lease, lease_until, claimed_at, worker, priority, group_key, done, jobs)
                            select leaf, 3, base, until, until - lease,  coalesce(worker, ''), 0, in_group,
                                   case when a.n = a.last then ~((~'0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000'::pg_catalog.bit(256)) << 256 - a.n::int >> 1) else ~(select bit_or(set_bit('0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000'::pg_catalog.bit(256), x.i::int, 1)) from d x) end, a.jobs
                              from alike a where not a.apart),
                        each as (
                            insert into penstock._lease_1 (slot, lease, queue, attempt, lease_until, id, created_at, priority, worker, group_key, key, headers, payload, failures, claimed_at)
                            select leaf, base + 2 * t.i, 3, t.attempt + 1, until, coalesce(t.id, t.seq), t.created_at, t.priority, coalesce(worker, ''), t.group_key, t.key, t.headers, t.payload, t.failures, until operator(pg_catalog.-) lease from d t where (select a.apart from alike a))
                    select coalesce(t.id, t.seq), t.key, t.group_key, t.priority, t.attempt operator(pg_catalog.+) 1, t.created_at, t.headers, t.payload, base + 2 * t.i, until from d t;
end if;

else
if drawn operator(pg_catalog.<) 1026 then
if leaf = 0 then
                    return query
                    with d as (delete from penstock."_kept.1" t where t.group_key = '' and t.priority = 0 and t.seq > pos and t.seq <= pos + most and t.xmax = '0' and t.key is null returning t.*, t.seq - pos as i), -- a row for the jobs of d, in place i each; a row each if they are few, or one is large, or if keys and priorities
                        -- have come since the flags were read
                        alike as (
                            select count(*) as n, max(t.i) as last, count(*) < 8 or bool_or(t.key is not null or t.priority <> 0 or octet_length(t.payload) > 65536) as apart,
                                   array_agg(row(base + 2 * t.i, coalesce(t.id, t.seq), t.created_at, t.attempt + 1, t.headers, t.payload, t.failures)::penstock._claimed)
                                       filter (where octet_length(t.payload) <= 65536) as jobs
                              from d t),
                        one as (
                            insert into penstock._lease_0 (slot, queue, lease, lease_until, claimed_at, worker, priority, group_key, done, jobs)
                            select leaf, 3, base, until, until - lease,  coalesce(worker, ''), 0, in_group,
                                   case when a.n = a.last then ~((~'0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000'::pg_catalog.bit(256)) << 256 - a.n::int >> 1) else ~(select bit_or(set_bit('0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000'::pg_catalog.bit(256), x.i::int, 1)) from d x) end, a.jobs
                              from alike a where not a.apart),
                        each as (
                            insert into penstock._lease_0 (slot, lease, queue, attempt, lease_until, id, created_at, priority, worker, group_key, key, headers, payload, failures, claimed_at)
                            select leaf, base + 2 * t.i, 3, t.attempt + 1, until, coalesce(t.id, t.seq), t.created_at, t.priority, coalesce(worker, ''), t.group_key, t.key, t.headers, t.payload, t.failures, until operator(pg_catalog.-) lease from d t where (select a.apart from alike a))
                    select coalesce(t.id, t.seq), t.key, t.group_key, t.priority, t.attempt operator(pg_catalog.+) 1, t.created_at, t.headers, t.payload, base + 2 * t.i, until from d t;
else
                    return query
                    with d as (delete from penstock."_kept.1" t where t.group_key = '' and t.priority = 0 and t.seq > pos and t.seq <= pos + most and t.xmax = '0' and t.key is null returning t.*, t.seq - pos as i), -- a row for the jobs of d, in place i each; a row each if they are few, or one is large, or if keys and priorities
                        -- have come since the flags were read
                        alike as (
                            select count(*) as n, max(t.i) as last, count(*) < 8 or bool_or(t.key is not null or t.priority <> 0 or octet_length(t.payload) > 65536) as apart,
                                   array_agg(row(base + 2 * t.i, coalesce(t.id, t.seq), t.created_at, t.attempt + 1, t.headers, t.payload, t.failures)::penstock._claimed)
                                       filter (where octet_length(t.payload) <= 65536) as jobs
                              from d t),
                        one as (
                            insert into penstock._lease_1 (slot, queue, lease, lease_until, claimed_at, worker, priority, group_key, done, jobs)
                            select leaf, 3, base, until, until - lease,  coalesce(worker, ''), 0, in_group,
                                   case when a.n = a.last then ~((~'0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000'::pg_catalog.bit(256)) << 256 - a.n::int >> 1) else ~(select bit_or(set_bit('0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000'::pg_catalog.bit(256), x.i::int, 1)) from d x) end, a.jobs
                              from alike a where not a.apart),
                        each as (
                            insert into penstock._lease_1 (slot, lease, queue, attempt, lease_until, id, created_at, priority, worker, group_key, key, headers, payload, failures, claimed_at)
                            select leaf, base + 2 * t.i, 3, t.attempt + 1, until, coalesce(t.id, t.seq), t.created_at, t.priority, coalesce(worker, ''), t.group_key, t.key, t.headers, t.payload, t.failures, until operator(pg_catalog.-) lease from d t where (select a.apart from alike a))
                    select coalesce(t.id, t.seq), t.key, t.group_key, t.priority, t.attempt operator(pg_catalog.+) 1, t.created_at, t.headers, t.payload, base + 2 * t.i, until from d t;
end if;

else
if leaf = 0 then
                    return query
                    with d as (delete from penstock."_kept.2" t where t.group_key = '' and t.priority = 0 and t.seq > pos and t.seq <= pos + most and t.xmax = '0' and t.key is null returning t.*, t.seq - pos as i), -- a row for the jobs of d, in place i each; a row each if they are few, or one is large, or if keys and priorities
                        -- have come since the flags were read
                        alike as (
                            select count(*) as n, max(t.i) as last, count(*) < 8 or bool_or(t.key is not null or t.priority <> 0 or octet_length(t.payload) > 65536) as apart,
                                   array_agg(row(base + 2 * t.i, coalesce(t.id, t.seq), t.created_at, t.attempt + 1, t.headers, t.payload, t.failures)::penstock._claimed)
                                       filter (where octet_length(t.payload) <= 65536) as jobs
                              from d t),
                        one as (
                            insert into penstock._lease_0 (slot, queue, lease, lease_until, claimed_at, worker, priority, group_key, done, jobs)
                            select leaf, 3, base, until, until - lease,  coalesce(worker, ''), 0, in_group,
                                   case when a.n = a.last then ~((~'0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000'::pg_catalog.bit(256)) << 256 - a.n::int >> 1) else ~(select bit_or(set_bit('0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000'::pg_catalog.bit(256), x.i::int, 1)) from d x) end, a.jobs
                              from alike a where not a.apart),
                        each as (
                            insert into penstock._lease_0 (slot, lease, queue, attempt, lease_until, id, created_at, priority, worker, group_key, key, headers, payload, failures, claimed_at)
                            select leaf, base + 2 * t.i, 3, t.attempt + 1, until, coalesce(t.id, t.seq), t.created_at, t.priority, coalesce(worker, ''), t.group_key, t.key, t.headers, t.payload, t.failures, until operator(pg_catalog.-) lease from d t where (select a.apart from alike a))
                    select coalesce(t.id, t.seq), t.key, t.group_key, t.priority, t.attempt operator(pg_catalog.+) 1, t.created_at, t.headers, t.payload, base + 2 * t.i, until from d t;
else
                    return query
                    with d as (delete from penstock."_kept.2" t where t.group_key = '' and t.priority = 0 and t.seq > pos and t.seq <= pos + most and t.xmax = '0' and t.key is null returning t.*, t.seq - pos as i), -- a row for the jobs of d, in place i each; a row each if they are few, or one is large, or if keys and priorities
                        -- have come since the flags were read
                        alike as (
                            select count(*) as n, max(t.i) as last, count(*) < 8 or bool_or(t.key is not null or t.priority <> 0 or octet_length(t.payload) > 65536) as apart,
                                   array_agg(row(base + 2 * t.i, coalesce(t.id, t.seq), t.created_at, t.attempt + 1, t.headers, t.payload, t.failures)::penstock._claimed)
                                       filter (where octet_length(t.payload) <= 65536) as jobs
                              from d t),
                        one as (
                            insert into penstock._lease_1 (slot, queue, lease, lease_until, claimed_at, worker, priority, group_key, done, jobs)
                            select leaf, 3, base, until, until - lease,  coalesce(worker, ''), 0, in_group,
                                   case when a.n = a.last then ~((~'0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000'::pg_catalog.bit(256)) << 256 - a.n::int >> 1) else ~(select bit_or(set_bit('0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000'::pg_catalog.bit(256), x.i::int, 1)) from d x) end, a.jobs
                              from alike a where not a.apart),
                        each as (
                            insert into penstock._lease_1 (slot, lease, queue, attempt, lease_until, id, created_at, priority, worker, group_key, key, headers, payload, failures, claimed_at)
                            select leaf, base + 2 * t.i, 3, t.attempt + 1, until, coalesce(t.id, t.seq), t.created_at, t.priority, coalesce(worker, ''), t.group_key, t.key, t.headers, t.payload, t.failures, until operator(pg_catalog.-) lease from d t where (select a.apart from alike a))
                    select coalesce(t.id, t.seq), t.key, t.group_key, t.priority, t.attempt operator(pg_catalog.+) 1, t.created_at, t.headers, t.payload, base + 2 * t.i, until from d t;
end if;

end if;
end if;
                end if;
                get diagnostics got = row_count;
                n := n - got;
                exit when n <= 0;
                empty := empty + (got = 0)::int;
                exit when empty > 2;
            end loop;
        end if;
    end if;
    if path is not null then
if path operator(pg_catalog.<) 1 then
if leaf = 0 then
        return query
        with d as (
            delete from penstock."_kept.0" t where t.ctid = any (array(
                select t.ctid from penstock."_kept.0" t
                 where t.group_key = '' and t.priority = 0 and t.seq > (select pg_sequence_last_value('penstock."_kept.next"'::pg_catalog.regclass)) and t.key is null
                 order by t.seq limit n for update skip locked))
            returning t.*)
        insert into penstock._lease_0 as l (slot, queue, attempt, lease_until, id, created_at, priority, worker, group_key, key, headers, payload, failures, claimed_at)
        select leaf, 3, t.attempt + 1, until, coalesce(t.id, t.seq), t.created_at, t.priority, coalesce(worker, ''), t.group_key, t.key, t.headers, t.payload, t.failures, until operator(pg_catalog.-) lease from d t order by t.seq
        returning l.id, l.key, l.group_key, l.priority, l.attempt, l.created_at, l.headers, l.payload, l.lease, l.lease_until;
else
        return query
        with d as (
            delete from penstock."_kept.0" t where t.ctid = any (array(
                select t.ctid from penstock."_kept.0" t
                 where t.group_key = '' and t.priority = 0 and t.seq > (select pg_sequence_last_value('penstock."_kept.next"'::pg_catalog.regclass)) and t.key is null
                 order by t.seq limit n for update skip locked))
            returning t.*)
        insert into penstock._lease_1 as l (slot, queue, attempt, lease_until, id, created_at, priority, worker, group_key, key, headers, payload, failures, claimed_at)
        select leaf, 3, t.attempt + 1, until, coalesce(t.id, t.seq), t.created_at, t.priority, coalesce(worker, ''), t.group_key, t.key, t.headers, t.payload, t.failures, until operator(pg_catalog.-) lease from d t order by t.seq
        returning l.id, l.key, l.group_key, l.priority, l.attempt, l.created_at, l.headers, l.payload, l.lease, l.lease_until;
end if;

else
if path operator(pg_catalog.<) 2 then
if leaf = 0 then
        return query
        with d as (
            delete from penstock."_kept.1" t where t.ctid = any (array(
                select t.ctid from penstock."_kept.1" t
                 where t.group_key = '' and t.priority = 0 and t.seq > (select pg_sequence_last_value('penstock."_kept.next"'::pg_catalog.regclass)) and t.key is null
                 order by t.seq limit n for update skip locked))
            returning t.*)
        insert into penstock._lease_0 as l (slot, queue, attempt, lease_until, id, created_at, priority, worker, group_key, key, headers, payload, failures, claimed_at)
        select leaf, 3, t.attempt + 1, until, coalesce(t.id, t.seq), t.created_at, t.priority, coalesce(worker, ''), t.group_key, t.key, t.headers, t.payload, t.failures, until operator(pg_catalog.-) lease from d t order by t.seq
        returning l.id, l.key, l.group_key, l.priority, l.attempt, l.created_at, l.headers, l.payload, l.lease, l.lease_until;
else
        return query
        with d as (
            delete from penstock."_kept.1" t where t.ctid = any (array(
                select t.ctid from penstock."_kept.1" t
                 where t.group_key = '' and t.priority = 0 and t.seq > (select pg_sequence_last_value('penstock."_kept.next"'::pg_catalog.regclass)) and t.key is null
                 order by t.seq limit n for update skip locked))
            returning t.*)
        insert into penstock._lease_1 as l (slot, queue, attempt, lease_until, id, created_at, priority, worker, group_key, key, headers, payload, failures, claimed_at)
        select leaf, 3, t.attempt + 1, until, coalesce(t.id, t.seq), t.created_at, t.priority, coalesce(worker, ''), t.group_key, t.key, t.headers, t.payload, t.failures, until operator(pg_catalog.-) lease from d t order by t.seq
        returning l.id, l.key, l.group_key, l.priority, l.attempt, l.created_at, l.headers, l.payload, l.lease, l.lease_until;
end if;

else
if leaf = 0 then
        return query
        with d as (
            delete from penstock."_kept.2" t where t.ctid = any (array(
                select t.ctid from penstock."_kept.2" t
                 where t.group_key = '' and t.priority = 0 and t.seq > (select pg_sequence_last_value('penstock."_kept.next"'::pg_catalog.regclass)) and t.key is null
                 order by t.seq limit n for update skip locked))
            returning t.*)
        insert into penstock._lease_0 as l (slot, queue, attempt, lease_until, id, created_at, priority, worker, group_key, key, headers, payload, failures, claimed_at)
        select leaf, 3, t.attempt + 1, until, coalesce(t.id, t.seq), t.created_at, t.priority, coalesce(worker, ''), t.group_key, t.key, t.headers, t.payload, t.failures, until operator(pg_catalog.-) lease from d t order by t.seq
        returning l.id, l.key, l.group_key, l.priority, l.attempt, l.created_at, l.headers, l.payload, l.lease, l.lease_until;
else
        return query
        with d as (
            delete from penstock."_kept.2" t where t.ctid = any (array(
                select t.ctid from penstock."_kept.2" t
                 where t.group_key = '' and t.priority = 0 and t.seq > (select pg_sequence_last_value('penstock."_kept.next"'::pg_catalog.regclass)) and t.key is null
                 order by t.seq limit n for update skip locked))
            returning t.*)
        insert into penstock._lease_1 as l (slot, queue, attempt, lease_until, id, created_at, priority, worker, group_key, key, headers, payload, failures, claimed_at)
        select leaf, 3, t.attempt + 1, until, coalesce(t.id, t.seq), t.created_at, t.priority, coalesce(worker, ''), t.group_key, t.key, t.headers, t.payload, t.failures, until operator(pg_catalog.-) lease from d t order by t.seq
        returning l.id, l.key, l.group_key, l.priority, l.attempt, l.created_at, l.headers, l.payload, l.lease, l.lease_until;
end if;

end if;
end if;
    elsif n = 0 then
        null; -- all that was asked for
    elsif flags & (4294967296 | 25769803776) = 0 then
        if pg_current_xact_id_if_assigned() is not null then
            came := null; -- jobs that this transaction took may come back, and it does not see them
        elsif came is not null then -- from a backlog few go by the skip map, each over all that was taken since it was made
            due := pg_sequence_last_value('penstock."_kept.fast_path"'::pg_catalog.regclass) % 4096 < 2048 or random() < 0.05;
        end if;
        base := case when acks is not null and n between 8 and 255 and flags = 65536 then (nextval('penstock._lease_n'::pg_catalog.regclass) % 34359738368 << 28) | (floor(random() * 524288)::bigint << 9) | 1 end;
        if base is null then
if leaf = 0 then
            return query
            insert into penstock._lease_0 as l (slot, queue, attempt, lease_until, id, created_at, priority, worker, group_key, key, headers, payload, failures, claimed_at)
            select leaf, 3, t.attempt + 1, until, coalesce(t.id, t.seq), t.created_at, t.priority, coalesce(worker, ''), t.group_key, t.key, t.headers, t.payload, t.failures, until operator(pg_catalog.-) lease from penstock."_kept.take_rows"(n, in_group, due) t
            returning l.id, l.key, l.group_key, l.priority, l.attempt, l.created_at, l.headers, l.payload, l.lease, l.lease_until;
else
            return query
            insert into penstock._lease_1 as l (slot, queue, attempt, lease_until, id, created_at, priority, worker, group_key, key, headers, payload, failures, claimed_at)
            select leaf, 3, t.attempt + 1, until, coalesce(t.id, t.seq), t.created_at, t.priority, coalesce(worker, ''), t.group_key, t.key, t.headers, t.payload, t.failures, until operator(pg_catalog.-) lease from penstock."_kept.take_rows"(n, in_group, due) t
            returning l.id, l.key, l.group_key, l.priority, l.attempt, l.created_at, l.headers, l.payload, l.lease, l.lease_until;
end if;
        else
if leaf = 0 then
            return query
            with d as materialized (select t.*, row_number() over () as i from penstock."_kept.take_rows"(n, in_group, due) t), -- a row for the jobs of d, in place i each; a row each if they are few, or one is large, or if keys and priorities
                        -- have come since the flags were read
                        alike as (
                            select count(*) as n, max(t.i) as last, count(*) < 8 or bool_or(t.key is not null or t.priority <> 0 or octet_length(t.payload) > 65536) as apart,
                                   array_agg(row(base + 2 * t.i, coalesce(t.id, t.seq), t.created_at, t.attempt + 1, t.headers, t.payload, t.failures)::penstock._claimed)
                                       filter (where octet_length(t.payload) <= 65536) as jobs
                              from d t),
                        one as (
                            insert into penstock._lease_0 (slot, queue, lease, lease_until, claimed_at, worker, priority, group_key, done, jobs)
                            select leaf, 3, base, until, until - lease,  coalesce(worker, ''), 0, in_group,
                                   case when a.n = a.last then ~((~'0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000'::pg_catalog.bit(256)) << 256 - a.n::int >> 1) else ~(select bit_or(set_bit('0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000'::pg_catalog.bit(256), x.i::int, 1)) from d x) end, a.jobs
                              from alike a where not a.apart),
                        each as (
                            insert into penstock._lease_0 (slot, lease, queue, attempt, lease_until, id, created_at, priority, worker, group_key, key, headers, payload, failures, claimed_at)
                            select leaf, base + 2 * t.i, 3, t.attempt + 1, until, coalesce(t.id, t.seq), t.created_at, t.priority, coalesce(worker, ''), t.group_key, t.key, t.headers, t.payload, t.failures, until operator(pg_catalog.-) lease from d t where (select a.apart from alike a))
            select coalesce(t.id, t.seq), t.key, t.group_key, t.priority, t.attempt operator(pg_catalog.+) 1, t.created_at, t.headers, t.payload, base + 2 * t.i, until from d t;
else
            return query
            with d as materialized (select t.*, row_number() over () as i from penstock."_kept.take_rows"(n, in_group, due) t), -- a row for the jobs of d, in place i each; a row each if they are few, or one is large, or if keys and priorities
                        -- have come since the flags were read
                        alike as (
                            select count(*) as n, max(t.i) as last, count(*) < 8 or bool_or(t.key is not null or t.priority <> 0 or octet_length(t.payload) > 65536) as apart,
                                   array_agg(row(base + 2 * t.i, coalesce(t.id, t.seq), t.created_at, t.attempt + 1, t.headers, t.payload, t.failures)::penstock._claimed)
                                       filter (where octet_length(t.payload) <= 65536) as jobs
                              from d t),
                        one as (
                            insert into penstock._lease_1 (slot, queue, lease, lease_until, claimed_at, worker, priority, group_key, done, jobs)
                            select leaf, 3, base, until, until - lease,  coalesce(worker, ''), 0, in_group,
                                   case when a.n = a.last then ~((~'0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000'::pg_catalog.bit(256)) << 256 - a.n::int >> 1) else ~(select bit_or(set_bit('0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000'::pg_catalog.bit(256), x.i::int, 1)) from d x) end, a.jobs
                              from alike a where not a.apart),
                        each as (
                            insert into penstock._lease_1 (slot, lease, queue, attempt, lease_until, id, created_at, priority, worker, group_key, key, headers, payload, failures, claimed_at)
                            select leaf, base + 2 * t.i, 3, t.attempt + 1, until, coalesce(t.id, t.seq), t.created_at, t.priority, coalesce(worker, ''), t.group_key, t.key, t.headers, t.payload, t.failures, until operator(pg_catalog.-) lease from d t where (select a.apart from alike a))
            select coalesce(t.id, t.seq), t.key, t.group_key, t.priority, t.attempt operator(pg_catalog.+) 1, t.created_at, t.headers, t.payload, base + 2 * t.i, until from d t;
end if;
        end if;
        get diagnostics got = row_count;
        if came is not null and got > 0 and got < n then
            perform setval('penstock."_kept.next"'::pg_catalog.regclass, greatest(came - 64, 0)), setval('penstock."_kept.fast_path"'::pg_catalog.regclass, (pg_catalog.date_part('epoch'::pg_catalog.text, pg_catalog.clock_timestamp()) operator(pg_catalog.*) '40')::bigint * 4096 + 2048 + pg_sequence_last_value('penstock."_kept.ring"'::pg_catalog.regclass) % 1024);
        end if;
    else
        if flags & 25769803776 <> 0 then
            most := (select case when q.paused then 0 else q.max_running end from penstock._queue q where q.id = 3);
        end if;
        if most > 0 then -- one claim at a time, and it counts
            if not pg_try_advisory_xact_lock('penstock._lease'::regclass::oid::int, 3) then
                most := 0;
            end if;
            foreach leaf in array penstock._listed('penstock._lease_slot'::pg_catalog.regclass) loop
if leaf = 0 then
                select coalesce(sum(coalesce(256 - bit_count(l.done), 1)), 0) into got from penstock._lease_0 l where l.queue = 3;
else
                select coalesce(sum(coalesce(256 - bit_count(l.done), 1)), 0) into got from penstock._lease_1 l where l.queue = 3;
end if;
                most := most - got;
            end loop;
        end if;
        n := least(n, most);
        if n > 0 then
            return query
            insert into penstock._lease as l (queue, attempt, lease_until, id, created_at, priority, worker, group_key, key, headers, payload, failures, claimed_at)
            select 3, t.attempt + 1, until, coalesce(t.id, t.seq), t.created_at, t.priority, coalesce(worker, ''), t.group_key, t.key, t.headers, t.payload, t.failures, until operator(pg_catalog.-) lease from penstock."_kept.take_keyed"(n, in_group, true) t
            returning l.id, l.key, l.group_key, l.priority, l.attempt, l.created_at, l.headers, l.payload, l.lease, l.lease_until;
        end if;
    end if;
    if acks <> '{}' then
        due := acks[1] & 1 = 0 and cardinality(acks) = 1 and (path is not null or drawn is not null and n = 0);
        if due and cardinality(acks) > 1 then -- where penstock."_kept.ack" would lock them in this order
            due := pg_sequence_last_value('penstock._lease_slot'::pg_catalog.regclass) < 2 and (select bit_or(a) & 1 = 0 from unnest(acks) a);
        end if;
        if due then
if leaf = 0 then
            return query
            with l as (delete from penstock._lease_0 l where l.lease = any (acks) and l.queue + 0 = 3 and l.jobs is null
            returning l.*), kept as (insert into penstock."_kept.done" (claimed_at, worker, group_key, priority, key, id, attempt, created_at, failures, report) select l.claimed_at, l.worker, l.group_key, l.priority, l.key, l.id, l.attempt, l.created_at, l.failures, l.report from l) select null::bigint, null::text, null::text, null::smallint, null::int, null::timestamptz, null::jsonb, null::bytea, l.lease, null::timestamptz from l;
else
            return query
            with l as (delete from penstock._lease_1 l where l.lease = any (acks) and l.queue + 0 = 3 and l.jobs is null
            returning l.*), kept as (insert into penstock."_kept.done" (claimed_at, worker, group_key, priority, key, id, attempt, created_at, failures, report) select l.claimed_at, l.worker, l.group_key, l.priority, l.key, l.id, l.attempt, l.created_at, l.failures, l.report from l) select null::bigint, null::text, null::text, null::smallint, null::int, null::timestamptz, null::jsonb, null::bytea, l.lease, null::timestamptz from l;
end if;
            get diagnostics got = row_count;
            if got = cardinality(acks) then
                acks := null;
            end if;
        elsif acks[1] & 1 = 1 and acks[cardinality(acks)] - acks[1] = 2 * cardinality(acks) - 2 then
if leaf = 0 then
            return query
            -- all of a claim, as it came; mostly that row is still as it was written
                with l as (
                    delete from penstock._lease_0 l
                     where l.lease = acks[1] - 2 and l.queue + 0 = 3 and l.done = ~((~'0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000'::pg_catalog.bit(256)) << 256 - cardinality(acks) >> 1)
                       and acks = array(select generate_series(acks[1], acks[cardinality(acks)], 2))
                    returning l.*),
                kept as (insert into penstock."_kept.done" (claimed_at, worker, group_key, priority, key, jobs, attempts, created, failed) select l.claimed_at, l.worker, l.group_key, l.priority, l.key, d.* from l cross join lateral (select array_agg(j.id), array_agg(j.attempt), array_agg(j.created_at), case when count(j.failures) > 0 then array_agg(j.failures) end from unnest(l.jobs) j) d) select null::bigint, null::text, null::text, null::smallint, null::int, null::timestamptz, null::jsonb, null::bytea, unnest(acks), null::timestamptz from l;
else
            return query
            -- all of a claim, as it came; mostly that row is still as it was written
                with l as (
                    delete from penstock._lease_1 l
                     where l.lease = acks[1] - 2 and l.queue + 0 = 3 and l.done = ~((~'0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000'::pg_catalog.bit(256)) << 256 - cardinality(acks) >> 1)
                       and acks = array(select generate_series(acks[1], acks[cardinality(acks)], 2))
                    returning l.*),
                kept as (insert into penstock."_kept.done" (claimed_at, worker, group_key, priority, key, jobs, attempts, created, failed) select l.claimed_at, l.worker, l.group_key, l.priority, l.key, d.* from l cross join lateral (select array_agg(j.id), array_agg(j.attempt), array_agg(j.created_at), case when count(j.failures) > 0 then array_agg(j.failures) end from unnest(l.jobs) j) d) select null::bigint, null::text, null::text, null::smallint, null::int, null::timestamptz, null::jsonb, null::bytea, unnest(acks), null::timestamptz from l;
end if;
            if found then
                acks := null;
            end if;
        end if;
        if acks is not null then
            return query select null::bigint, null::text, null::text, null::smallint, null::int, null::timestamptz, null::jsonb, null::bytea, a, null::timestamptz
                           from penstock."_kept.ack"(acks) a;
        end if;
    end if;
    
    if pg_catalog.abs((pg_catalog.date_part('epoch'::pg_catalog.text, pg_catalog.clock_timestamp()) operator(pg_catalog.*) '1000')::bigint operator(pg_catalog.-) pg_catalog.pg_sequence_last_value('penstock."_kept.maintained"'::pg_catalog.regclass)) operator(pg_catalog.>=) 250
       and pg_catalog.current_setting('transaction_isolation') operator(pg_catalog.=) 'read committed' then
        insert into penstock._maintenance (queue, until) values (3, until);
    end if;
end $function$;

-- ack ends jobs and returns the leases that were held. queue + 0 keeps the planner from the indexes that begin with the queue: a
-- lease is found by its number. Where the ring has turned since it was asked what is listed, a lease may have moved to where
-- nobody looked. Whoever locks several leases does it in one order: by segment as listed, in each the rows of several by number,
-- and then the others.
CREATE OR REPLACE FUNCTION penstock."_kept.ack"(in_leases bigint[])
 RETURNS SETOF bigint
 LANGUAGE plpgsql
 SECURITY DEFINER
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET enable_seqscan TO 'off'
 SET enable_bitmapscan TO 'off'
 SET jit TO 'off'
 SET plan_cache_mode TO 'force_generic_plan'
AS $function$
declare
    todo int := cardinality(in_leases);
    turn bigint;
    got  int;
    held bigint[];
    keys text[];
    leaf int := pg_sequence_last_value('penstock._lease_slot'::pg_catalog.regclass) % 2;
    odd  boolean := in_leases[1] & 1 = 1; -- mostly of a claim of several
begin
    if todo = 1 and not odd and pg_sequence_last_value('penstock."_kept.flags"'::pg_catalog.regclass) & 4294967296 = 0 then -- few expressions, see dequeue_NAME
if leaf = 0 then
        return query with l as (delete from penstock._lease_0 l where l.lease = any (in_leases) and l.queue + 0 = 3 and l.jobs is null returning l.*), kept as (insert into penstock."_kept.done" (claimed_at, worker, group_key, priority, key, id, attempt, created_at, failures, report) select l.claimed_at, l.worker, l.group_key, l.priority, l.key, l.id, l.attempt, l.created_at, l.failures, l.report from l) select l.lease from l;
else
        return query with l as (delete from penstock._lease_1 l where l.lease = any (in_leases) and l.queue + 0 = 3 and l.jobs is null returning l.*), kept as (insert into penstock."_kept.done" (claimed_at, worker, group_key, priority, key, id, attempt, created_at, failures, report) select l.claimed_at, l.worker, l.group_key, l.priority, l.key, l.id, l.attempt, l.created_at, l.failures, l.report from l) select l.lease from l;
end if;
        if found then
            return;
        end if;
    elsif odd is not true and todo > 1 then
        odd := (select bool_or(a & 1 = 1) from unnest(in_leases) a);
    elsif odd and in_leases[todo] - in_leases[1] = 2 * todo - 2 then
        foreach leaf in array penstock._listed('penstock._lease_slot'::pg_catalog.regclass) loop
if leaf = 0 then
            return query -- all of a claim, as it came; mostly that row is still as it was written
                with l as (
                    delete from penstock._lease_0 l
                     where l.lease = in_leases[1] - 2 and l.queue + 0 = 3 and l.done = ~((~'0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000'::pg_catalog.bit(256)) << 256 - cardinality(in_leases) >> 1)
                       and in_leases = array(select generate_series(in_leases[1], in_leases[cardinality(in_leases)], 2))
                    returning l.*),
                kept as (insert into penstock."_kept.done" (claimed_at, worker, group_key, priority, key, jobs, attempts, created, failed) select l.claimed_at, l.worker, l.group_key, l.priority, l.key, d.* from l cross join lateral (select array_agg(j.id), array_agg(j.attempt), array_agg(j.created_at), case when count(j.failures) > 0 then array_agg(j.failures) end from unnest(l.jobs) j) d) select unnest(in_leases) from l;
else
            return query -- all of a claim, as it came; mostly that row is still as it was written
                with l as (
                    delete from penstock._lease_1 l
                     where l.lease = in_leases[1] - 2 and l.queue + 0 = 3 and l.done = ~((~'0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000'::pg_catalog.bit(256)) << 256 - cardinality(in_leases) >> 1)
                       and in_leases = array(select generate_series(in_leases[1], in_leases[cardinality(in_leases)], 2))
                    returning l.*),
                kept as (insert into penstock."_kept.done" (claimed_at, worker, group_key, priority, key, jobs, attempts, created, failed) select l.claimed_at, l.worker, l.group_key, l.priority, l.key, d.* from l cross join lateral (select array_agg(j.id), array_agg(j.attempt), array_agg(j.created_at), case when count(j.failures) > 0 then array_agg(j.failures) end from unnest(l.jobs) j) d) select unnest(in_leases) from l;
end if;
            if found then
                return;
            end if;
        end loop;
    end if;
    loop
        turn := pg_sequence_last_value('penstock._lease_slot'::pg_catalog.regclass);
        foreach leaf in array penstock._listed('penstock._lease_slot'::pg_catalog.regclass) loop
            if odd then
if leaf = 0 then
                return query
                with m as materialized (
                    select a & -511 as lease, bit_or(set_bit('0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000'::pg_catalog.bit(256), (a >> 1 & 255)::int, 1)) as places from unnest(in_leases) a where a & 1 = 1 group by 1 order by 1),
                o as materialized (
                    select l.lease, l.done, l.claimed_at, l.worker, l.group_key, l.priority, l.key, l.jobs, m.places & ~l.done as ended
                      from m cross join lateral (select * from penstock._lease_0 l where l.lease = m.lease and l.queue + 0 = 3 and l.jobs is not null for update) l),
                whole as (
                    delete from penstock._lease_0 l where l.lease = any (array(select o.lease from o where o.done | o.ended = ~'0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000'::pg_catalog.bit(256)))),
                part as (
                    update penstock._lease_0 l set done = l.done | o.ended from o -- not by =, for which the table might be joined as a whole
                     where l.lease >= o.lease and l.lease <= o.lease and o.done | o.ended <> ~'0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000'::pg_catalog.bit(256) and o.ended <> '0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000'::pg_catalog.bit(256)),
                kept as (
                    insert into penstock."_kept.done" (claimed_at, worker, group_key, priority, key, jobs, attempts, created, failed) select l.claimed_at, l.worker, l.group_key, l.priority, l.key, d.* from o l cross join lateral (
                        select array_agg(j.id), array_agg(j.attempt), array_agg(j.created_at), case when count(j.failures) > 0 then array_agg(j.failures) end from unnest(l.jobs) j where get_bit(l.ended, (j.lease >> 1 & 255)::int) = 1) d
                     where l.ended <> '0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000'::pg_catalog.bit(256))
                select o.lease + 2 * i from o cross join generate_series(1, 255) i where get_bit(o.ended, i) = 1;
else
                return query
                with m as materialized (
                    select a & -511 as lease, bit_or(set_bit('0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000'::pg_catalog.bit(256), (a >> 1 & 255)::int, 1)) as places from unnest(in_leases) a where a & 1 = 1 group by 1 order by 1),
                o as materialized (
                    select l.lease, l.done, l.claimed_at, l.worker, l.group_key, l.priority, l.key, l.jobs, m.places & ~l.done as ended
                      from m cross join lateral (select * from penstock._lease_1 l where l.lease = m.lease and l.queue + 0 = 3 and l.jobs is not null for update) l),
                whole as (
                    delete from penstock._lease_1 l where l.lease = any (array(select o.lease from o where o.done | o.ended = ~'0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000'::pg_catalog.bit(256)))),
                part as (
                    update penstock._lease_1 l set done = l.done | o.ended from o -- not by =, for which the table might be joined as a whole
                     where l.lease >= o.lease and l.lease <= o.lease and o.done | o.ended <> ~'0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000'::pg_catalog.bit(256) and o.ended <> '0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000'::pg_catalog.bit(256)),
                kept as (
                    insert into penstock."_kept.done" (claimed_at, worker, group_key, priority, key, jobs, attempts, created, failed) select l.claimed_at, l.worker, l.group_key, l.priority, l.key, d.* from o l cross join lateral (
                        select array_agg(j.id), array_agg(j.attempt), array_agg(j.created_at), case when count(j.failures) > 0 then array_agg(j.failures) end from unnest(l.jobs) j where get_bit(l.ended, (j.lease >> 1 & 255)::int) = 1) d
                     where l.ended <> '0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000'::pg_catalog.bit(256))
                select o.lease + 2 * i from o cross join generate_series(1, 255) i where get_bit(o.ended, i) = 1;
end if;
                get diagnostics got = row_count;
                todo := todo - got;
                exit when todo <= 0;
            end if;
            if pg_sequence_last_value('penstock."_kept.flags"'::pg_catalog.regclass) & 4294967296 = 0 and todo = 1 then
if leaf = 0 then
                return query with l as (delete from penstock._lease_0 l where l.lease = any (in_leases) and l.queue + 0 = 3 and l.jobs is null returning l.*), kept as (insert into penstock."_kept.done" (claimed_at, worker, group_key, priority, key, id, attempt, created_at, failures, report) select l.claimed_at, l.worker, l.group_key, l.priority, l.key, l.id, l.attempt, l.created_at, l.failures, l.report from l) select l.lease from l;
else
                return query with l as (delete from penstock._lease_1 l where l.lease = any (in_leases) and l.queue + 0 = 3 and l.jobs is null returning l.*), kept as (insert into penstock."_kept.done" (claimed_at, worker, group_key, priority, key, id, attempt, created_at, failures, report) select l.claimed_at, l.worker, l.group_key, l.priority, l.key, l.id, l.attempt, l.created_at, l.failures, l.report from l) select l.lease from l;
end if;
                get diagnostics got = row_count;
            else
if leaf = 0 then
                with d as (delete from penstock._lease_0 l where l.lease = any (in_leases) and l.queue + 0 = 3 and l.jobs is null returning l.*),
                kept as (insert into penstock."_kept.done" (claimed_at, worker, group_key, priority, key, id, attempt, created_at, failures, report, jobs, attempts, created, failed)
                        select l.claimed_at, l.worker, l.group_key, l.priority, l.key,
                               case when count(*) = 1 then min(l.id) end, case when count(*) = 1 then min(l.attempt) end, case when count(*) = 1 then min(l.created_at) end,
                               case when count(*) = 1 then (array_agg(l.failures))[1] end, (array_agg(l.report))[1],
                               case when count(*) > 1 then array_agg(l.id) end, case when count(*) > 1 then array_agg(l.attempt) end, case when count(*) > 1 then array_agg(l.created_at) end,
                               case when count(*) > 1 and count(l.failures) > 0 then array_agg(l.failures) end
                          from (select d.*, row_number() over () / 255 as part, case when d.key is not null or d.report is not null then d.lease end as single from d) l
                         group by l.claimed_at, l.worker, l.group_key, l.priority, l.key, l.single, l.part)
                select array_agg(d.lease), array_agg(distinct d.key) filter (where d.key is not null), count(*) into held, keys, got from d;
else
                with d as (delete from penstock._lease_1 l where l.lease = any (in_leases) and l.queue + 0 = 3 and l.jobs is null returning l.*),
                kept as (insert into penstock."_kept.done" (claimed_at, worker, group_key, priority, key, id, attempt, created_at, failures, report, jobs, attempts, created, failed)
                        select l.claimed_at, l.worker, l.group_key, l.priority, l.key,
                               case when count(*) = 1 then min(l.id) end, case when count(*) = 1 then min(l.attempt) end, case when count(*) = 1 then min(l.created_at) end,
                               case when count(*) = 1 then (array_agg(l.failures))[1] end, (array_agg(l.report))[1],
                               case when count(*) > 1 then array_agg(l.id) end, case when count(*) > 1 then array_agg(l.attempt) end, case when count(*) > 1 then array_agg(l.created_at) end,
                               case when count(*) > 1 and count(l.failures) > 0 then array_agg(l.failures) end
                          from (select d.*, row_number() over () / 255 as part, case when d.key is not null or d.report is not null then d.lease end as single from d) l
                         group by l.claimed_at, l.worker, l.group_key, l.priority, l.key, l.single, l.part)
                select array_agg(d.lease), array_agg(distinct d.key) filter (where d.key is not null), count(*) into held, keys, got from d;
end if;
                if keys is not null then
                    perform penstock._promote(3, keys);
                end if;
                return query select unnest(held);
            end if;
            todo := todo - got;
            exit when todo <= 0;
        end loop;
        exit when todo <= 0 or turn = pg_sequence_last_value('penstock._lease_slot'::pg_catalog.regclass);
    end loop;
    if todo > 0 then
        perform penstock._not_moved(3, in_leases);
    end if;
end $function$;
