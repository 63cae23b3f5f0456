-- Cursors and leases: how far each subscription is, and who may move it.

-- _head returns the cursor and lease of a subscription, by a backward index probe. Volatile, for a snapshot that is
-- taken under its locks. With the caller's, after waiting for _reclaim_cursor, it would find nothing at all: TRUNCATE
-- is not MVCC, and the copy of the head not visible yet.
--
-- The transaction that wrote a row is younger than its snapshot. Where it is not, a dump was restored that comes from a copy of this
-- cluster, which has the same identifier and was ahead in transactions. The row's xids mean nothing here, and its system is another.
-- Of xmin the server keeps 32 bits: the youngest transaction that has them is taken, which never is an older one.
create or replace function _head(subscription bigint) returns setof _cursor
language sql volatile set search_path from current as $$
    select c.subscription, epoch, n, at, lease_until, since, low, upto_low, pos, settled,
           case when youngest - (youngest - c.xmin::text::bigint & 4294967295) < pg_snapshot_xmax(coalesce(upto, done))::text::bigint then ~system else system end,
           slot, holder, done, upto, timeline, ahead from _cursor c, (select pg_snapshot_xmax(pg_current_snapshot())::text::bigint + 1073741824) y(youngest)
     where c.subscription = _head.subscription order by epoch desc, n desc limit 1 $$;

-- _write_cursor appends to the cursor log, which moves the cursor and extends the lease, and returns the new n. It
-- returns null and writes nothing without the subscription or with another head: another holder has the lease, or a write that a
-- lost connection left under way came first. It holds the subscription's lock in shared form, and a takeover the
-- exclusive one. So a holder whose lease has expired cannot write between the moment when the next one reads the cursor
-- and the moment when its epoch is visible. A lease of 0 gives the lease back, and without expected it is a takeover.
create or replace function _write_cursor(subscription bigint, epoch bigint, holder text, lease_us bigint, done pg_snapshot, low bigint,
                              upto pg_snapshot, upto_low bigint, pos bigint, settled bigint, system bigint, since timestamptz, expected bigint, timeline integer,
                              ahead int8multirange) returns bigint
language plpgsql volatile set search_path from current as $$ declare written bigint;
begin
    perform _read_committed();
    perform pg_advisory_xact_lock_shared(1885695596, subscription::int); -- leaseLock in outbox_lease.go; the next statement has a snapshot taken under it
    insert into _cursor (subscription, epoch, holder, lease_until, done, low, upto, upto_low, pos, settled, system, since, timeline, ahead)
    select $1, $2, $3, case $4 when 0 then timestamptz 'epoch' else clock_timestamp() + $4 * interval '1 microsecond' end, $5, $6, $7, $8, $9, $10, $11, $12, $14, $15
     where exists (select from _subscription s where s.id = $1) and (expected is null or (select h.n from _head($1) h) = expected)
    returning n into written;
    return written;
end $$;

-- _report_sink notes whether a subscription's sink takes messages, when that changes. A relay's role may change nothing
-- else of a subscription. False if the lease has been lost.
create or replace function _report_sink(subscription bigint, epoch bigint, down timestamptz, error text) returns boolean
language plpgsql security definer set search_path from current as $$ begin
    update _subscription s set sink_epoch = $2, sink_down = down, sink_error = error
     where s.id = $1 and (select h.epoch from _head($1) h) = $2;
    return found;
end $$;

-- _turn_ring keeps a ring of two segments small: once the current one has full_bytes it moves the pointer to the other
-- one, carries over rows that still count and truncates. carry is an INSERT in which %1$s is the segment that is emptied and
-- %2$s the number of the other one. rest is the number of bytes that it would copy. The segment stays while these are more than
-- 8 MiB and half of what has come since, so that copying costs less than writing did.
create or replace function _turn_ring(ring text, full_bytes bigint, carry text, rest text default 'select 0') returns boolean
language plpgsql set search_path from current as $$ declare
    current int;
    sealed  text;
    other   text;
    bytes   bigint;
begin
    perform _read_committed();
    if not pg_try_advisory_xact_lock(_q(ring)::regclass::oid::int, 0) then return false; end if;
    current := pg_sequence_last_value(_q(ring || '_slot')::regclass);
    sealed := _q(format('%s_%s', ring, 1 - current));
    other := _q(format('%s_%s', ring, current));
    if pg_relation_size(sealed) = 0 then
        if pg_table_size(other) < full_bytes or pg_relation_size(other) = 0 then return false; end if;
        current := 1 - current;
        perform setval(_q(ring || '_slot'), current);
        select other, sealed into sealed, other;
    end if;
    execute format(rest, sealed) into bytes;
    if bytes > greatest(8388608, pg_table_size(other) / 2) then return false; end if;
    return _truncate(sealed, 'false', format(carry, sealed, current));
end $$;

-- _reclaim_cursor keeps the cursor log small. A copy keeps its (epoch, n), so a head that was written meanwhile stays one.
create or replace function _reclaim_cursor() returns boolean
language sql volatile security definer set search_path from current as $$
    select _turn_ring('_cursor', 4194304, $sql$
        insert into _cursor (subscription, epoch, n, at, lease_until, since, low, upto_low, pos, settled, system, timeline, holder, done, upto, ahead, slot)
        select h.subscription, h.epoch, h.n, h.at, h.lease_until, h.since, h.low, h.upto_low, h.pos, h.settled, h.system, h.timeline, h.holder, h.done, h.upto, h.ahead, %2$s
          from _subscription s, lateral _head(s.id) h
         where h.slot = 1 - %2$s$sql$) $$;
