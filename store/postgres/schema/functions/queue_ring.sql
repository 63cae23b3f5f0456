-- The upkeep of a queue's ring and of the marks.

-- _rest_in says whether a segment holds a job, and the snapshot in which it looked.
-- Where jobs are taken from one end it looks from the other: while some are left,
-- that is one probe.
create or replace function _rest_in(segment text, lifo boolean, out rest boolean, out snap pg_snapshot)
language plpgsql volatile set search_path from current
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set jit = off as $$
begin
    execute format('select exists (select from (select from %s t order by t.xid %s limit 1) one), pg_current_snapshot()',
                   segment, case when lifo then 'asc' else 'desc' end) into rest, snap;
end $$;

-- _reclaim_segment truncates a segment that holds no job and says whether it did.
-- What it had not seen before it got the lock can only come from transactions that
-- were in flight then, or younger: a delete that is not committed hides nothing.
create or replace function _reclaim_segment(queue text, slot int) returns boolean
language plpgsql volatile set search_path from current set lock_timeout = '20ms'
set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
declare
    q       _queue := (select q from _queue q where q.name = queue);
    segment text := _q(format('_%s.%s', queue, slot));
    looked  record;
    late    boolean;
begin
    select * into looked from _rest_in(segment, q.lifo);
    if looked.rest then
        return false;
    end if;
    execute format('lock table %s in access exclusive mode', segment);
    execute format('select exists (select from %1$s t where t.xid = any ($1)) or exists (select from %1$s t where t.xid >= $2)', segment)
       into late using array(select pg_snapshot_xip(looked.snap)), pg_snapshot_xmax(looked.snap);
    if late then
        return false;
    end if;
    execute format('truncate table %s', segment);
    delete from _segment s where s.queue = q.id and s.slot = _reclaim_segment.slot;
    return true;
exception when lock_not_available then
    return false;
end $$;

-- _maintain_ring truncates the segments of a queue that hold no job any more and
-- moves its pointer on when the current one is full, or holds nothing. It is called
-- about once a second, at the end of a short transaction: the locks on what it
-- truncates last until that ends. force does not wait for the queue to be idle.
--
-- Each TRUNCATE rewrites catalogue rows, which a pinned snapshot keeps; so a queue in
-- use gives a segment back only when that is worth it.
create or replace function _maintain_ring(queue text, force boolean default false) returns void
language plpgsql volatile security definer set search_path from current as $$
declare
    q         _queue;
    ring      regclass := _q(format('_%s.ring', queue))::regclass;
    seen      regclass := _q(format('_%s.seen', queue))::regclass;
    since     regclass := _q(format('_%s.since', queue))::regclass;
    now_ms    bigint := extract(epoch from clock_timestamp()) * 1000;
    seq       bigint := coalesce(pg_sequence_last_value(_q(format('_%s.seq', queue))::regclass), 0);
    current   int;
    next_slot int;
    stray     int;
    bytes     bigint;
    idle      bigint;
begin
    perform _read_committed();
    select * into q from _queue x where x.name = queue;
    if not pg_try_advisory_xact_lock('_queue'::regclass::oid::int, q.id) then
        return;
    end if;
    if seq <> pg_sequence_last_value(seen) or now_ms < pg_sequence_last_value(since) then
        perform setval(seen, seq), setval(since, now_ms);
    end if;
    idle := now_ms - pg_sequence_last_value(since);
    current := pg_sequence_last_value(ring) % 1024;
    -- A segment that is written to and not listed: its rotation was rolled back, or the
    -- writer had read the pointer before it moved, and came when it was truncated.
    for stray in select g.slot from _slots(queue) g
                  where (g.slot = current or pg_relation_size(_q(format('_%s.%s', queue, g.slot))) > 0)
                    and not exists (select from _segment s where s.queue = q.id and s.slot = g.slot) loop
        perform setval(ring, (pg_sequence_last_value(ring) / 1024 + 1) * 1024 + current); -- the lists in marks are out of date
        insert into _segment (queue, slot, turn)
        select q.id, stray, case when stray = current then pg_sequence_last_value(ring) / 1024 else coalesce(min(s.turn), 0) - 1 end
          from _segment s where s.queue = q.id;
    end loop;
    perform _reclaim_segment(q.name, s.slot) from _segment s where s.queue = q.id and s.slot <> current order by s.turn;
    bytes := pg_table_size(_q(format('_%s.%s', queue, current)));
    if bytes >= q.segment_bytes
       or pg_relation_size(_q(format('_%s.%s', queue, current))) > 0
          and (force or bytes >= least(q.segment_bytes, 16777216) or idle >= case when bytes >= 1048576 then 1000 else 10000 end)
          and not (select rest from _rest_in(_q(format('_%s.%s', queue, current)), q.lifo)) then
        select g.slot into next_slot
          from _slots(queue) g
         where not exists (select from _segment s where s.queue = q.id and s.slot = g.slot)
           and pg_relation_size(_q(format('_%s.%s', queue, g.slot))) = 0
         order by (g.slot < current), g.slot limit 1;
        if next_slot is not null then
            perform setval(ring, (pg_sequence_last_value(ring) / 1024 + 1) * 1024 + next_slot);
            insert into _segment (queue, slot, turn) values (q.id, next_slot, pg_sequence_last_value(ring) / 1024);
            if bytes < q.segment_bytes then
                perform _reclaim_segment(queue, current);
            end if;
        end if;
    end if;
end $$;

-- _reclaim_marks moves the pointer to the other segment of marks once the current one
-- is large, carries over the marks that are still true, and truncates the rest. A mark
-- that is lost costs a scan and nothing else: an older one stays valid for ever.
create or replace function _reclaim_marks() returns boolean
language plpgsql volatile security definer set search_path from current set lock_timeout = '20ms'
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off as $$
declare
    current int;
    sealed  int;
begin
    if not pg_try_advisory_xact_lock('_mark'::regclass::oid::int, 0) then
        return false;
    end if;
    current := pg_sequence_last_value('_mark_slot');
    sealed := 1 - current;
    if pg_relation_size(_q('_mark_' || sealed)) = 0 then
        if pg_relation_size(_q('_mark_' || current)) >= 4194304 then
            perform setval('_mark_slot', sealed); -- emptied by the next call
        end if;
        return false;
    end if;
    execute format($sql$
        insert into _mark (queue, n, base, seen, xid, turn, priority, grp, lo, hi, pending, slots)
        select l.queue, l.n, l.base, l.seen, l.xid, l.turn, l.priority, l.grp, l.lo, l.hi, l.pending, l.slots
          from (select distinct queue, grp, priority from %1$s) d
         cross join lateral (select * from %1$s m where m.queue = d.queue and m.grp = d.grp and m.priority = d.priority order by m.n desc limit 1) l
         where exists (select from _queue q where q.id = d.queue)
           and not exists (select from %2$s x where x.queue = d.queue and x.grp = d.grp and x.priority = d.priority)$sql$,
        _q('_mark_' || sealed), _q('_mark_' || current));
    execute format('lock table %s in access exclusive mode', _q('_mark_' || sealed));
    execute format('truncate table %s', _q('_mark_' || sealed));
    return true;
exception when lock_not_available then
    return false;
end $$;
