-- Policies of groups: how many jobs may be claimed from one now. A queue without any pays nothing: claims come here if the
-- flag {watched} is raised.
--
-- How many jobs of a group run is counted, from leases. So there is nothing to give back, and a worker that dies leaves nothing
-- behind. A claim of a group with a limit lists the group's leases in _group_state, and the next one looks which of those listed are
-- still there. An index of leases by group would cost every claim of every queue. Claims of a group that has a limit or a rate take turns,
-- by a lock that they hold until they commit: each sees the lists of those before.

-- _policy is the policy in a group's own row of _group, or in that of *.
create or replace function _policy(queue int, in_group text) returns _group
language plpgsql volatile set search_path from current as $$
declare g _group;
begin
    select * into g from _group x where x.queue = _policy.queue and x.group_key in (in_group, '*') order by x.group_key = in_group desc limit 1;
    return g;
end $$;

-- _state_of returns the newest state of a group, with the leases of all rows from since on. n is null if there is none. A state of a queue as a whole is that of the
-- group '' under the queue's negative number.
create or replace function _state_of(queue int, in_group text) returns _group_state
language plpgsql volatile set search_path from current set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
declare turn constant bigint := pg_sequence_last_value('_group_state_slot'); s _group_state; other _group_state; leaf int;
begin
    s.queue := queue;
    s.group_key := in_group;
    s.leases := '{}';
    foreach leaf in array _listed('_group_state_slot') loop
        if leaf = 0 then
            select * into other from _group_state_0 x where x.queue = _state_of.queue and x.group_key = in_group order by x.n desc limit 1;
        else
            select * into other from _group_state_1 x where x.queue = _state_of.queue and x.group_key = in_group order by x.n desc limit 1;
        end if;
        if other.n > coalesce(s.n, 0) then
            s := other;
        end if;
    end loop;
    if s.since is not null then
        s.leases := array(select unnest(x.leases) from _group_state x where x.queue = _state_of.queue and x.group_key = in_group and x.n >= s.since and x.n <= s.n);
    end if;
    return case when turn <> pg_sequence_last_value('_group_state_slot') then _state_of(queue, in_group) else s end; -- the ring may have turned meanwhile
end $$;

-- _lock_group takes the lock under which a group's jobs are admitted. It waits for 20 ms, and only in a transaction that
-- has changed nothing: another one may wait for this one.
create or replace function _lock_group(queue int, in_group text) returns boolean
language plpgsql volatile set search_path from current as $$
begin
    for round in 1 .. 20 loop
        if pg_try_advisory_xact_lock(hashtextextended(in_group, 2199023255552 + queue)) then
            return true;
        end if;
        exit when pg_current_xact_id_if_assigned() is not null;
        perform pg_sleep(0.0001 * round);
    end loop;
    return false;
end $$;

-- _tokens returns how many jobs a rate lets start now (GCRA). next_at is when the next one would start if they were evenly spread. It is ahead of the
-- clock by at most burst intervals, or 95 years, as in other databases. After a clock was set back it can be further ahead. If the next job would
-- wait for longer than per it starts at once, and the next state goes by the new time.
create or replace function _tokens(next_at timestamptz, rate int, per interval, burst int) returns int
language plpgsql volatile set search_path from current as $$
declare
    every constant float8 := extract(epoch from per) / rate;
    room  constant float8 := least(coalesce(burst, 1) * every, 3e9) - coalesce(greatest(extract(epoch from next_at - clock_timestamp()), 0), 0);
begin
    return case when every - room > extract(epoch from per) + 0.001 then 1 else greatest(floor(room / every + 1e-9), 0) end;
end $$;

-- _after_starts returns the next state's next_at, after some jobs have started.
create or replace function _after_starts(next_at timestamptz, rate int, per interval, burst int, started int) returns timestamptz
language plpgsql volatile set search_path from current as $$
declare
    now   constant timestamptz := clock_timestamp();
    every constant float8 := extract(epoch from per) / rate; -- not an interval: a month of the calendar has 28 to 31 days
begin
    return greatest(least(coalesce(next_at, now), now + make_interval(secs => least(coalesce(burst, 1) * every, 3e9) - every)), now) + make_interval(secs => started * every);
end $$;

-- _numbers_of returns the numbers under which a lease is listed. A row of several jobs may be parted, so it has those of its jobs as well.
create or replace function _numbers_of(l _lease) returns bigint[]
language sql immutable set search_path from current as $$
    select array[l.lease] || array(select j.lease from unnest(l.jobs) j)
$$;

-- _still_held returns those of listed leases that are still there, but for those that acks end, and how many jobs they hold. It is one statement,
-- so a lease that moves to the other segment meanwhile counts once.
create or replace function _still_held(queue int, among bigint[], acks bigint[], out jobs int, out leases bigint[])
language plpgsql volatile set search_path from current as $$
begin
    select coalesce(sum(case when x.number <> l.lease then 0 when l.jobs is null then 1 else 256 - bit_count(l.done) end), 0), coalesce(array_agg(x.number), '{}')
      into jobs, leases
      from _lease l cross join lateral unnest(case when l.jobs is null then array[l.lease] else _numbers_of(l) end) x(number)
     where l.lease = any (among) and l.queue + 0 = _still_held.queue and (l.jobs is not null or (l.lease = any (acks)) is not true);
end $$;

-- _note_state writes the next state of a group, which lists more leases. Mostly it lists all, and beyond 64 now and then.
create or replace function _note_state(s _group_state, more bigint[]) returns void
language plpgsql volatile set search_path from current as $$
begin
    if cardinality(s.leases) <= 64 or random() < 0.03 then
        s.since := null;
        more := s.leases || more;
    else
        s.since := coalesce(s.since, s.n);
    end if;
    insert into _group_state (queue, group_key, next_at, held_until, reason, leases, since) values (s.queue, s.group_key, s.next_at, s.held_until, s.reason, more, s.since);
end $$;

-- _admit returns how many of n jobs a claim may take from a group, and whether it lists their leases; null: not even their number matters, for a rate.
-- Under a limit of the queue it tries (_lease, queue), under one of the group it tries the group's lock for 20 ms, and keeps them until the commit. So one
-- claim at a time counts, and sees what those before it wrote. Without a lock it admits none. It writes nothing, so that the claim can move a
-- skip map's bound; unless listed is null the claim calls _admitted then.
--
-- crowded: with n more, more than half of a limit is in use. state is the group's, with the listed leases that are left. acks are ended by the same transaction.
create or replace function _admit(queue int, in_group text, n int, acks bigint[], out q _queue, out g _group, out admitted int, out listed boolean, out crowded boolean, out state _group_state)
language plpgsql volatile set search_path from current as $$
declare running int; room int; -- how many more jobs limits let run
begin
    select * into q from _queue x where x.id = _admit.queue;
    g := _policy(queue, in_group);
    admitted := case when q.paused then 0 else n end;
    if num_nonnulls(q.max_running, q.rate, g.max_running, g.rate) > 0 and current_setting('transaction_isolation') not in ('read committed', 'read uncommitted') then
        raise exception 'a claim where a limit is set needs the isolation level read committed, this transaction is %', current_setting('transaction_isolation')
        using errcode = '25001', hint = 'it does not see which jobs others have claimed since it began; begin it with: begin isolation level read committed';
    end if;
    if admitted > 0 and (q.max_running is not null or q.rate is not null) then -- one claim at a time, and it counts
        if not pg_try_advisory_xact_lock('_lease'::regclass::oid::int, queue) then
            admitted := 0;
            crowded := q.max_running is not null;
            return;
        end if;
        if q.max_running is not null then
            room := q.max_running - _running(queue, acks);
            crowded := room - n < q.max_running / 2.0;
        end if;
        if q.rate is not null then
            listed := false;
            admitted := least(admitted, _tokens((_state_of(-queue, '')).next_at, q.rate, q.per, q.burst));
        end if;
    end if;
    if least(admitted, room) > 0 then
        if num_nonnulls(g.max_running, g.rate) > 0 and not _lock_group(queue, in_group) then
            admitted := 0;
            crowded := g.max_running is not null;
            return;
        end if;
        state := _state_of(queue, in_group);
        if state.held_until > clock_timestamp() then
            admitted := 0;
        end if;
        if admitted > 0 and g.rate is not null then
            listed := false;
            admitted := least(admitted, _tokens(state.next_at, g.rate, g.per, g.burst));
        end if;
        if admitted > 0 and (g.max_running is not null or listed is not null and state.leases <> '{}') then
            select h.jobs, h.leases into running, state.leases from _still_held(queue, state.leases, acks) h;
            if g.max_running is not null then
                listed := true;
                room := least(room, g.max_running - running);
                crowded := crowded is true or g.max_running - running - n < g.max_running / 2.0;
            end if;
        end if;
    end if;
    admitted := greatest(least(admitted, room), 0);
end $$;

-- _admitted writes down that a claim of a group took these leases: q, g and state are from _admit, and it lists them if listed.
create or replace function _admitted(q _queue, g _group, state _group_state, leases bigint[], listed boolean) returns void
language plpgsql volatile set search_path from current as $$
declare s _group_state;
begin
    if leases is null then
        return;
    elsif q.rate is not null then
        s := _state_of(-q.id, '');
        s.next_at := _after_starts(s.next_at, q.rate, q.per, q.burst, cardinality(leases));
        perform _note_state(s, '{}');
    end if;
    if g.rate is not null then
        state.next_at := _after_starts(state.next_at, g.rate, g.per, g.burst, cardinality(leases));
    end if;
    if g.rate is not null or listed then
        perform _note_state(state, case when listed then leases else '{}' end);
    end if;
end $$;

-- _queue_open returns whether anything may be claimed from a queue now, whatever the group. It locks nothing.
create or replace function _queue_open(queue int) returns boolean
language plpgsql volatile set search_path from current as $$
declare q constant _queue := (select x from _queue x where x.id = _queue_open.queue);
begin
    return (q.paused or q.max_running <= _running(queue, null)) is not true
       and case when q.rate is null then true else _tokens((_state_of(-queue, '')).next_at, q.rate, q.per, q.burst) > 0 end;
end $$;

-- _group_open returns whether anything may be claimed from a group now. It locks nothing.
create or replace function _group_open(queue int, in_group text) returns boolean
language plpgsql volatile set search_path from current as $$
declare
    g constant _group := _policy(queue, in_group);
    s constant _group_state := _state_of(queue, in_group);
begin
    return (s.held_until > clock_timestamp()) is not true
       and case when g.rate is null then true else _tokens(s.next_at, g.rate, g.per, g.burst) > 0 end
       and case when g.max_running is null then true else (_still_held(queue, s.leases, null)).jobs < g.max_running end;
end $$;

-- _weighted repeats each group as often as it weighs.
create or replace function _weighted(queue int, group_keys text[]) returns setof text
language sql volatile set search_path from current as $$
    select k.group_key
      from unnest(group_keys) with ordinality k(group_key, i)
      left join _group g on g.queue = _weighted.queue and g.group_key = k.group_key
      left join _group d on d.queue = _weighted.queue and d.group_key = '*'
     cross join lateral generate_series(1, case when g.queue is null then coalesce(d.weight, 1) else coalesce(g.weight, 1) end)
     order by k.i
$$;

-- _may_dequeue returns whether jobs of a group may be dequeued. A dequeue has no lease, so it cannot be counted.
create or replace function _may_dequeue(queue int, in_group text) returns boolean
language plpgsql volatile set search_path from current as $$
declare
    q constant _queue := (select x from _queue x where x.id = _may_dequeue.queue);
    g constant _group := _policy(queue, in_group);
begin
    if q.paused then
        return false;
    elsif q.max_running is not null or q.rate is not null then
        raise exception 'the queue limits how many jobs run, which dequeue cannot count'
        using errcode = '0A000', hint = 'use claim, or lift the limit: select set_queue(name, max_running => 0, rate => 0)';
    elsif g.max_running is not null or g.rate is not null then
        raise exception 'the group limits how many jobs run, which dequeue cannot count'
        using errcode = '0A000', hint = 'use claim, or lift the limit with set_group';
    end if;
    return ((_state_of(queue, in_group)).held_until > clock_timestamp()) is not true;
end $$;

-- _refuse_rate raises an error for a rate that is not possible.
create or replace function _refuse_rate(rate int, per interval, burst int) returns void
language plpgsql immutable set search_path from current as $$
begin
    if rate is null and (per is not null or burst is not null) or rate not between 1 and 1000000 then
        raise exception 'the rate is %, expected 1 to 1000000', coalesce(rate::text, 'null') using errcode = '22023', hint = 'for example rate => 60, per => interval ''1 minute''';
    elsif rate is not null and (per between interval '1 ms' and interval '366 days') is not true then
        raise exception 'per is %, expected a millisecond to 366 days', coalesce(per::text, 'null') using errcode = '22023', hint = 'for example interval ''1 s''';
    elsif extract(epoch from per) * 1000000 < rate then
        raise exception 'the rate is % in %, expected at most one job a microsecond', rate, per using errcode = '22023', hint = 'use a lower rate, or none';
    elsif burst not between 1 and 1000000 then
        raise exception 'burst is %, expected 1 to 1000000', burst using errcode = '22023', hint = 'null means 1';
    end if;
end $$;

-- _set_group replaces the policy of a group. It locks the queue's row until the transaction ends, so that maintenance
-- does not lower the flag meanwhile, then writes the policy and raises the flag. With a new limit, jobs may run that no
-- state of the group lists. So it waits for transactions that have not seen the flag, up to 0.2 s (_await_others), and
-- lists these leases under the group's lock, which it only tries (_list_leases).
create or replace function _set_group(queue int, in_group text, max_running int, rate int, per interval, burst int, weight int) returns void
language plpgsql volatile set search_path from current as $$
declare raised boolean;
begin
    if (octet_length(in_group) <= 256) is not true then
        raise exception 'the group has % bytes, the limit is 256', coalesce(octet_length(in_group)::text, 'null') using errcode = '23514', hint = 'use a shorter name, or * for all groups without a policy';
    elsif max_running < 1 then
        raise exception 'max_running is %, expected at least 1', max_running using errcode = '22023', hint = 'null means no limit; hold_group stops a group';
    elsif weight not between 1 and 100 then
        raise exception 'the weight is %, expected 1 to 100', weight using errcode = '22023', hint = 'null means 1';
    end if;
    perform _refuse_rate(rate, per, burst);
    perform from _queue x where x.id = _set_group.queue for no key update; -- the flag is not lowered meanwhile
    raised := (_queue_flags((select x.name from _queue x where x.id = _set_group.queue))).watched;
    delete from _group g where g.queue = _set_group.queue and g.group_key = in_group;
    if num_nonnulls(max_running, rate, weight) = 0 then
        return;
    end if;
    insert into _group (queue, group_key, max_running, rate, per, burst, weight) values (queue, in_group, max_running, rate, per, burst, weight);
    perform _watch(queue);
    if max_running is not null then
        if not raised then
            perform _await_others();
        end if;
        perform _list_leases(queue);
    end if;
end $$;

-- _hold_group holds a group from now, or releases it. It locks the queue's row, so that the flag is not lowered meanwhile, and then the group's lock, for
-- which it waits until claims of the group have committed. So it writes the next state behind theirs. It shortens no hold: what a worker asks for
-- must not end one that an operator has made.
create or replace function _hold_group(queue int, in_group text, hold_for interval, reason text) returns void
language plpgsql volatile set search_path from current as $$
declare s _group_state;
begin
    if in_group = '*' then
        raise exception 'the group is *, which stands for all groups' using errcode = '22023', hint = 'hold one group, or pause the queue';
    elsif (octet_length(in_group) <= 256) is not true then
        raise exception 'the group has % bytes, the limit is 256', coalesce(octet_length(in_group)::text, 'null') using errcode = '23514', hint = 'give the name of a group';
    elsif (hold_for between interval '0' and interval '1000 years') is not true then
        raise exception 'hold_for is %, expected nothing to 1000 years', coalesce(hold_for::text, 'null') using errcode = '22023', hint = 'it is counted from now; interval ''0'' releases the group';
    elsif octet_length(reason) > 1024 then
        raise exception 'the reason has % bytes, the limit is 1024', octet_length(reason) using errcode = '23514', hint = 'use a shorter one';
    end if;
    perform from _queue x where x.id = _hold_group.queue for no key update; -- the flag is not lowered meanwhile
    perform pg_advisory_xact_lock(hashtextextended(in_group, 2199023255552 + queue)); -- see _lock_group
    s := _state_of(queue, in_group);
    if hold_for > interval '0' and (s.held_until > clock_timestamp() + hold_for) is not true or hold_for = interval '0' and s.held_until > clock_timestamp() then
        s.held_until := case when hold_for > interval '0' then clock_timestamp() + hold_for end;
        s.reason := case when hold_for > interval '0' then _hold_group.reason end;
        perform _note_state(s, '{}');
        perform _watch(queue);
    end if;
end $$;

-- _list_leases lists the leases of groups that have a limit now and had none when they were claimed, of up to 500 groups. One whose claim has not
-- committed, and a group whose lock is held, are left to the maintenance, which looks once a second.
create or replace function _list_leases(queue int) returns void
language plpgsql volatile set search_path from current set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
declare
    groups text[] := array(
        select x.group_key from (
            select distinct l.group_key from _lease l
             where l.queue = _list_leases.queue and l.listed is not true and (_policy(l.queue, l.group_key)).max_running is not null limit 500) x
         where _lock_group(_list_leases.queue, x.group_key));
begin
    if groups <> '{}' then
        -- First, because a lease that is committed after this is listed the next time.
        update _lease l set listed = true where l.lease = any (array(
            select x.lease from _lease x where x.queue = _list_leases.queue and x.group_key = any (groups) and x.listed is not true for update skip locked));
        insert into _group_state (queue, group_key, next_at, held_until, reason, leases)
        select x.queue, x.group_key, s.next_at, s.held_until, s.reason, x.leases
          from (select l.queue, l.group_key, array_agg(n) as leases from _lease l cross join unnest(_numbers_of(l)) n
                 where l.queue = _list_leases.queue and l.group_key = any (groups) group by l.queue, l.group_key) x
         cross join _state_of(x.queue, x.group_key) s;
    end if;
end $$;

-- _is_watched returns whether a claim has to look at the row of a queue, or at its groups.
create or replace function _is_watched(q _queue) returns boolean
language plpgsql volatile set search_path from current as $$
begin
    return q.paused or q.max_running is not null or q.rate is not null
        or exists (select from _group g where g.queue = q.id)
        or exists (select from _group_state s where s.queue = q.id and s.held_until > clock_timestamp());
end $$;

-- _group_limits lists the limits of groups, which are a group's own or those of *. If group_keys is null it lists instead up to most groups after
-- one that have a policy or are held, with their own limits.
create or replace function _group_limits(queue int, group_keys text[], after text, most int)
returns table (group_key text, max_running int, rate int, per interval, burst int, weight int, tokens int, held_until timestamptz, reason text)
language sql volatile set search_path from current as $$
    with held as (
        select * from (select distinct on (s.group_key) s.* from _group_state s where s.queue = _group_limits.queue order by s.group_key, s.n desc) s
         where s.held_until > clock_timestamp() and group_keys is null),
    named as (
        select unnest(group_keys) collate "C" as group_key
        union select g.group_key from _group g where g.queue = _group_limits.queue and group_keys is null
        union select h.group_key from held h)
    select n.group_key, g.max_running, g.rate, g.per, g.burst, g.weight, case when g.rate is not null then _tokens(s.next_at, g.rate, g.per, g.burst) end,
           case when s.held_until > clock_timestamp() then s.held_until end, case when s.held_until > clock_timestamp() then s.reason end
      from (select * from named n where after is null or n.group_key > after or after = '' order by n.group_key limit most) n
     cross join lateral _state_of(_group_limits.queue, n.group_key) s
      left join lateral (
        select x.* from _group x where x.queue = _group_limits.queue and (x.group_key = n.group_key or x.group_key = '*' and group_keys is not null)
         order by x.group_key = n.group_key desc limit 1) g on true
     where g.queue is not null or s.held_until > clock_timestamp()
     order by n.group_key
$$;
