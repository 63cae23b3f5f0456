-- The ring of an outbox: which segment is written to, and which can be emptied.

-- _segments lists the partitions of an outbox or a queue, by slot.
create or replace function _segments(outbox text) returns table (slot int, oid oid)
language sql stable set search_path from current as $$
    select substring(c.relname from $re$\.([0-9]+)\Z$re$)::int, c.oid
      from pg_inherits i join pg_class c on c.oid = i.inhrelid
     where i.inhparent = _q(outbox)::regclass $$;

-- _rotate moves the segment pointer to an empty segment and returns its slot. It returns null, and moves nothing, if
-- the current segment is not full (unless forced), if no other is empty, or while another process rotates.
--
-- The ring does not grow. A writer that already holds its lock on the outbox does
-- not notice a partition that was attached since, and would fail.
create or replace function _rotate(outbox text, force boolean) returns int
language plpgsql security definer set search_path from current as $$ declare
    slot_name regclass := _q('_' || outbox || '.slot')::regclass;
    current   int;
    target    int;
begin
    if not pg_try_advisory_xact_lock('_outbox'::regclass::oid::int, hashtext(outbox)) then return null; end if;
    current := pg_sequence_last_value(slot_name);
    if not force and pg_table_size(_q(format('_%s.%s', outbox, current))) <
                     (select segment_bytes from _outbox o where o.name = outbox) then
        return null;
    end if;
    select s.slot into target from _segments(outbox) s
     where pg_relation_size(s.oid) = 0 and s.slot <> current
     order by (s.slot < current), s.slot limit 1; -- the next one around
    if target is not null then perform setval(slot_name, target); end if;
    return target;
end $$;

-- _reclaim truncates one segment if every subscription has settled all of it and
-- no open transaction has written to it. It returns whether it did.
--
-- The lock shows that no writer is open; rows of one that committed just before
-- are seen by the probes, whose snapshots are taken under the lock. A writer that
-- read the pointer before it moved may still write here afterwards: readers look
-- into every segment, and the next reclaim finds it.
create or replace function _reclaim(outbox text, slot int) returns boolean
language plpgsql security definer set search_path from current set lock_timeout = '20ms'
as $$ declare segment text := _q(format('_%s.%s', outbox, slot));
begin
    perform _read_committed();
    -- One process at a time: two that have looked into the segment would each keep
    -- the other from locking it.
    if not pg_try_advisory_xact_lock('_outbox'::regclass::oid::int, hashtext(outbox))
       or slot = pg_sequence_last_value(_q('_' || outbox || '.slot')::regclass)
       or _behind(outbox, slot) or _is_dumped(segment) then -- do not lock without need
        return false;
    end if;
    execute format('lock table %s in access exclusive mode', segment);
    if _behind(outbox, slot) then return false; end if;
    execute format('truncate table %s', segment);
    return true;
exception when lock_not_available then
    return false;
end $$;

-- _unsettled_in returns whether the segment holds a row that the subscription's
-- durable cursor does not cover. Two index probes: rows of transactions that were in flight (by
-- xid), and rows above the bound (by seq). The bound means that no younger transaction has a seq
-- below it.
create or replace function _unsettled_in(segment regclass, subscription bigint) returns boolean
language plpgsql volatile set search_path from current
set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$ declare
    c     _cursor;
    upto  pg_snapshot;
    pos   bigint;
    bound bigint;
    found boolean;
begin
    select * into c from _head(subscription);
    if c.subscription is null or c.system <> (select system_identifier from pg_control_system()) then
        return true;
    end if;
    upto  := coalesce(c.upto, c.done);
    pos   := coalesce(c.pos, 9223372036854775807);
    bound := least(pos, coalesce(c.upto_low, c.low));
    execute format('select exists (select from %1$s e where e.xid = any ($1))
                        or exists (select from %1$s e where e.seq > $2
                                      and not pg_visible_in_snapshot(e.xid, $3)
                                      and not (pg_visible_in_snapshot(e.xid, $4) and e.seq <= $5))', segment)
       into found
      using array(select pg_snapshot_xip(upto)), bound, c.done, upto, pos;
    return found;
end $$;

-- _retained returns whether a segment's settled messages are kept: because of the outbox's retention, or because a replay
-- is under way. By size the oldest segment goes first: a segment stays while another one has an older row.
create or replace function _retained(outbox text, segment regclass) returns boolean
language plpgsql volatile set search_path from current
set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$ declare
    o      _outbox := (select o from _outbox o where o.name = outbox);
    first  bigint;
    last   bigint;
    newest timestamptz;
    older  boolean;
begin
    if o.retain_age is null and o.retain_bytes is null and not exists (select from _replay r where r.outbox = _retained.outbox) then
        return false;
    end if;
    execute format('select seq from %s order by seq limit 1', segment) into first;
    execute format('select seq, created_at from %s order by seq desc limit 1', segment) into last, newest;
    if first is null then return false; end if;
    if exists (select from _replay r where r.outbox = _retained.outbox and r.pos < last and r.to_seq >= first) then
        return true;
    end if;
    execute format('select exists (select from %s e where e.seq < $1)', _q(outbox)) into older using first;
    return (o.retain_age is not null or o.retain_bytes is not null)
       and (o.retain_age is null or newest > clock_timestamp() - o.retain_age)
       and (o.retain_bytes is null or older or o.retain_bytes >= (select sum(pg_total_relation_size(s.oid)) from _segments(outbox) s));
end $$;

-- _behind returns whether a segment cannot be truncated yet: it holds messages that a subscription has not settled, or that are
-- retained. Without a subscription it is true.
create or replace function _behind(outbox text, slot int) returns boolean
language sql volatile security definer set search_path from current as $$
    select coalesce((select bool_or(_unsettled_in(segment, s.id)) from _subscription s where s.outbox = _behind.outbox), true) or _retained(outbox, segment)
      from (select _q(format('_%s.%s', outbox, slot))::regclass as segment) g $$;

-- _holders names the subscriptions that have not settled all of a segment, and returns whether its messages are retained.
create or replace function _holders(outbox text, slot int, out subscriptions text[], out retained boolean)
language sql volatile security definer set search_path from current as $$
    select array(select s.name from _subscription s where s.outbox = _holders.outbox and _unsettled_in(segment, s.id) order by s.name),
           _retained(outbox, segment)
      from (select _q(format('_%s.%s', outbox, slot))::regclass as segment) g $$;
