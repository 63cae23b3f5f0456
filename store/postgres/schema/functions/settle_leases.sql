-- Other ends of a lease than an ack, and what extends it: extended, reported on, given back, failed.

-- _extend makes leases end by from now, and returns those that were held. The row of a claim of several ends later as a whole if all that is left
-- of it is named.
create or replace function _extend(queue int, leases bigint[], by interval) returns table (lease bigint, until timestamptz)
language plpgsql volatile set search_path from current as $$ begin
    if (by > interval '0' and by <= interval '1000 years') is not true then
        raise exception 'the lease is %, expected more than nothing and at most 1000 years', coalesce(by::text, 'null')
        using errcode = '22023', hint = 'it is counted from now, for example interval ''30 s''';
    end if;
    return query select * from _change_leases(queue, leases, by, null,
        'update _lease_%s l set lease_until = clock_timestamp() + $3 where l.lease = any ($1) and l.queue + 0 = $2 and l.jobs is null returning l.lease, l.lease_until, null::text',
        case when (select bool_or(l & 1 = 1) from unnest(leases) l) then $sql$
            with m as materialized (
                select a & -511 as lease, bit_or(set_bit(repeat('0', 256)::bit(256), (a >> 1 & 255)::int, 1)) as places from unnest($1) a where a & 1 = 1 group by 1 order by 1),
            o as materialized ( -- others are parted, which locks them in between
                select l.lease, l.done | m.places as named
                  from m cross join lateral (select * from _lease_%1$s l where l.lease = m.lease and l.queue + 0 = $2 and l.jobs is not null for update) l),
            u as (
                update _lease_%1$s l set lease_until = clock_timestamp() + $3
                 where l.lease = any (array(select o.lease from o where o.named = ~repeat('0', 256)::bit(256)))
                returning l.*)
            select u.lease + 2 * i, u.lease_until from u cross join generate_series(1, 255) i where get_bit(u.done, i) = 0$sql$ end);
end $$;

-- _report writes the report of a running job, see _reported, and returns when its lease ends, null if the lease is lost. Lease 0 stands for the worker
-- itself: its report adds a row that holds no job, under the negative number of the queue. Such a row is neither updated nor deleted. It goes with
-- its segment, as soon as it has ended.
create or replace function _report(queue int, lease bigint, report jsonb) returns timestamptz
language plpgsql volatile set search_path from current as $$ declare until timestamptz;
begin
    if octet_length(report::text) > 65536 then
        raise exception 'the report has % bytes, the limit is 65536', octet_length(report::text) using errcode = '23514', hint = 'store it elsewhere and report a reference';
    elsif lease = 0 then
        if (octet_length(report ->> 'worker') between 1 and 256) is not true then
            raise exception 'the report of a worker has no member worker of 1 to 256 bytes' using errcode = '22023', hint = 'lease 0 stands for the worker itself';
        end if;
        insert into _lease as l (queue, lease_until, claimed_at, priority, worker, group_key, report)
        values (-queue, clock_timestamp() + interval '90 s', clock_timestamp(), 0, report ->> 'worker', '', report - 'worker')
        returning l.lease_until into until;
        return until;
    end if;
    return (select c.until from _change_leases(queue, array[lease], null, report,
        'update _lease_%s l set report = _reported(coalesce(l.report, (l.headers ->> ''penstock-report'')::jsonb), $4) where l.lease = any ($1) and l.queue + 0 = $2 and l.jobs is null returning l.lease, l.lease_until, null::text') c);
end $$;

-- _reported returns a report merged with the one before, which may be an earlier attempt's. The member penstock-steps holds the results of steps by
-- their names. A report that has it adds its members to those before, and its steps to theirs, where they must be new. Any other takes the place of all but the steps.
create or replace function _reported(before jsonb, report jsonb) returns jsonb
language plpgsql immutable set search_path from current as $$ declare
    kept  constant jsonb := case jsonb_typeof(before) when 'object' then before else '{}' end;
    steps constant jsonb := kept -> 'penstock-steps';
    added constant jsonb := case jsonb_typeof(report) when 'object' then report -> 'penstock-steps' end;
    again constant text := case jsonb_typeof(added) when 'object' then (select k from jsonb_object_keys(added) k where steps -> k is not null limit 1) end;
    made  jsonb := report;
begin
    if jsonb_typeof(added) <> 'object' or steps is not null and jsonb_typeof(report) <> 'object' then
        raise exception 'the report of a job with steps is %, expected an object', left(report::text, 100)
        using errcode = '22023', hint = 'for example {"rows": 5}, or for a step {"penstock-steps": {"charge": {"receipt": 7}}}';
    elsif again is not null then
        raise exception 'the step % has returned already', quote_literal(again)
        using errcode = '22023', hint = 'give each step of a job a different name; the next attempt has the result';
    elsif added is not null then
        made := kept || report || jsonb_build_object('penstock-steps', coalesce(steps, '{}') || added);
    elsif steps is not null then
        made := coalesce(report, '{}') || jsonb_build_object('penstock-steps', steps);
    end if;
    if octet_length(made::text) > 65536 then
        raise exception 'the report has % bytes with the results of the steps, the limit is 65536', octet_length(made::text)
        using errcode = '23514', hint = 'store a large result elsewhere and return a reference';
    end if;
    return made;
end $$;

-- _with_report returns the headers with which a job waits for its next attempt. They carry the report, as they do the kind: so the job keeps it wherever
-- it goes, and only a job that has one pays for it. A new job cannot have one, see _validate_job.
create or replace function _with_report(headers jsonb, report jsonb) returns jsonb
language sql immutable set search_path from current as $$ select coalesce(headers, '{}') || jsonb_build_object('penstock-report', report::text) $$;

-- _release gives jobs back; the attempt does not count. By its id a job keeps its place among those of its key, which wait for it. So it is due at its
-- deadline at the latest, and ends. _release returns the leases that were held.
create or replace function _release(queue int, leases bigint[], after interval) returns setof bigint
language plpgsql volatile set search_path from current as $$ begin
    perform _refuse_pause(after);
    return query select c.lease from _change_leases(queue, leases, after, null, format($sql$
        with d as (delete from _lease_%%s l where l.lease = any ($1) and l.queue + 0 = $2 and l.jobs is null returning l.*),
        back as (
            insert into %s attempt, id, created_at, priority, group_key, key, headers, payload, failures)
            select %s, d.id, d.created_at, d.priority, d.group_key, d.key, case when d.report is null then d.headers else _with_report(d.headers, d.report) end, d.payload, d.failures from d order by d.id)
        select d.lease, d.lease_until, d.key from d$sql$,
        case when after > interval '0' then '_scheduled (due, queue,' else (select replace(_q(q.name), '%', '%%') from _queue q where q.id = queue) || ' (' end,
        -- -1 is not one either, but of a job that has begun: those of its key wait, see {busy}
        case when after > interval '0' then 'least(clock_timestamp() + $3, _deadline(d.headers)), $2, case when d.attempt = 1 then -1 else d.attempt - 1 end' else 'd.attempt - 1' end)) c;
end $$;

-- _refuse_pause raises an error for a time that is too long to wait.
create or replace function _refuse_pause(after interval) returns void
language plpgsql volatile set search_path from current as $$ begin
    if after > interval '1000 years' then
        raise exception 'the job is to be tried again after %, expected at most 1000 years', after
        using errcode = '22023', hint = 'dead-letter the job if it is not to run again';
    end if;
end $$;

-- _change_leases does one thing with the leases that are held, segment by segment, and returns them with their end. In its statements %s is a
-- segment's number: of_one is for rows of one job, of_all for rows of several of which all that is left is named. Other rows of several are parted
-- before of_one. A statement returns the lease, its end, and a key whose next job may be ready then. Rows are locked in {ack}'s
-- order, and as it does this looks again where the ring has turned meanwhile.
create or replace function _change_leases(queue int, leases bigint[], by interval, report jsonb, of_one text, of_all text default null) returns table (lease bigint, until timestamptz)
language plpgsql volatile set search_path from current
set enable_seqscan = off set enable_bitmapscan = off set jit = off set plan_cache_mode = force_generic_plan as $$ declare
    held bigint[] := '{}';
    keys text[] := '{}';
    k    text;
    turn bigint;
    leaf int;
begin
    loop
        turn := pg_sequence_last_value('_lease_slot');
        foreach leaf in array _listed('_lease_slot') loop
            if of_all is not null then
                for lease, until in execute format(of_all, leaf) using leases, queue, by loop
                    held := held || lease;
                    return next;
                end loop;
            end if;
            -- Only leases in this segment: a transaction that holds several locks them in {ack}'s order. Parted jobs go to
            -- the last one listed.
            perform _part(queue, array(select unnest(leases) except select unnest(held)), leaf);
            for lease, until, k in execute format(of_one, leaf) using leases, queue, by, report loop
                held := held || lease;
                keys := keys || k;
                return next;
            end loop;
        end loop;
        leases := array(select unnest(leases) except select unnest(held));
        exit when leases = '{}' or turn = pg_sequence_last_value('_lease_slot');
    end loop;
    keys := array(select distinct x from unnest(keys) x where x is not null);
    if keys <> '{}' then -- a job with a smaller id may have come meanwhile, and waits for these
        perform _promote(queue, keys);
    end if;
    if leases <> '{}' then perform _not_moved(queue, leases); end if;
end $$;

-- _part splits the row of a claim of several jobs that has one of these leases: each job that is left gets a separate
-- row. If a segment is named, it splits rows of that segment only.
create or replace function _part(queue int, leases bigint[], segment int default null) returns void
language plpgsql volatile set search_path from current as $$ declare turn bigint; leaf int;
begin
    leases := array(select l from unnest(leases) l where l & 1 = 1);
    while leases <> '{}' and turn is distinct from pg_sequence_last_value('_lease_slot') loop
        turn := pg_sequence_last_value('_lease_slot');
        foreach leaf in array case when segment is null then _listed('_lease_slot') else array[segment] end loop
            execute format($sql$
                with m as materialized (
                    select a & -511 as lease, bit_or(set_bit(repeat('0', 256)::bit(256), (a >> 1 & 255)::int, 1)) as places from unnest($1) a group by 1 order by 1),
                d as (
                    delete from _lease_%s l using m -- not by =, see {ack}
                     where l.lease >= m.lease and l.lease <= m.lease and l.queue + 0 = $2 and l.jobs is not null
                       and m.places & ~l.done <> repeat('0', 256)::bit(256)
                    returning l.*)
                insert into _lease (lease, queue, attempt, lease_until, claimed_at, id, created_at, priority, worker, listed, group_key, headers, payload, failures)
                select j.lease, d.queue, j.attempt, d.lease_until, d.claimed_at, j.id, j.created_at, d.priority, d.worker, d.listed, d.group_key, j.headers, j.payload, j.failures
                  from d cross join lateral unnest(d.jobs) j where get_bit(d.done, (j.lease >> 1 & 255)::int) = 0$sql$, leaf) using leases, queue;
        end loop;
    end loop;
end $$;

-- _fail ends an attempt that failed: the job runs again when it is due, or is dead if final or the attempts are used
-- up. It returns when it is due, null if it is dead.
create or replace function _fail(queue int, lease bigint, after interval, error text, final boolean) returns timestamptz
language plpgsql volatile set search_path from current
set enable_seqscan = off set enable_bitmapscan = off set jit = off set plan_cache_mode = force_generic_plan as $$ declare
    q    _queue := (select q from _queue q where q.id = queue);
    l    _lease;
    turn bigint;
    leaf int;
    due  timestamptz;
begin
    perform _refuse_pause(after), _part(queue, array[lease]);
    loop
        turn := pg_sequence_last_value('_lease_slot');
        foreach leaf in array _listed('_lease_slot') loop
            execute format('delete from _lease_%s x where x.lease = $1 and x.queue + 0 = $2 and x.jobs is null returning *', leaf) into l using lease, q.id;
            exit when l.lease is not null;
        end loop;
        exit when l.lease is not null or turn = pg_sequence_last_value('_lease_slot');
    end loop;
    if l.lease is null then perform _not_moved(q.id, array[lease]), _lost(lease); end if;
    l.failures := _failed(l.failures, l.attempt, error);
    if l.report is not null then l.headers := _with_report(l.headers, l.report); end if;
    if final or l.attempt >= _max_attempts(l.headers, q.max_attempts) then
        insert into _dead_job (queue, id, attempt, created_at, priority, group_key, key, headers, payload, failures)
        values (q.id, l.id, l.attempt, l.created_at, l.priority, l.group_key, l.key, l.headers, l.payload, l.failures);
        perform _count_holders(q.id, array[l.headers], -1, 1);
        if l.key is not null then perform _promote(q.id, array[l.key]); end if;
        return null;
    end if;
    after := coalesce(after, least(3600, 2 ^ least(l.attempt, 12)) * (0.8 + 0.4 * random()) * interval '1 s');
    due := least(clock_timestamp() + after, _deadline(l.headers)); -- as in _release
    if due <= clock_timestamp() then
        execute format('insert into %s (id, attempt, created_at, priority, group_key, key, headers, payload, failures)
                        values ($1.id, $1.attempt, $1.created_at, $1.priority, $1.group_key, $1.key, $1.headers, $1.payload, $1.failures)', _q(q.name)) using l;
    else
        insert into _scheduled (id, queue, attempt, due, created_at, priority, group_key, key, headers, payload, failures)
        values (l.id, q.id, l.attempt, due, l.created_at, l.priority, l.group_key, l.key, l.headers, l.payload, l.failures);
    end if;
    if l.key is not null then -- a job with a smaller id may have come meanwhile, and waits for this one
        perform _promote(q.id, array[l.key]);
    end if;
    return due;
end $$;
