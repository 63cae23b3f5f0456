-- The contents of registers, by name, and views that show it to people. A register is a sequence, because it is written without a row
-- that dies and without a transaction; the hot functions of a queue read theirs directly.

-- _register returns the value of one of a queue's registers.
create or replace function _register(queue text, name text) returns bigint
language sql volatile set search_path from current as $$ select pg_sequence_last_value(_q(format('_%s.%s', queue, name))::regclass) $$;

-- _ring_position returns where jobs of a queue are written to: the segment's slot, and the turn, which grows with each
-- change of the list. The register holds turn * 1024 + slot.
create or replace function _ring_position(queue text, out turn bigint, out slot int)
language sql volatile set search_path from current as $$ select ring / 1024, (ring % 1024)::int from _register(queue, 'ring') ring $$;

-- _queue_flags returns the flags that decide what a call that takes jobs has to look at. priorities: jobs of these may be
-- there (bit 16 + p of the register). keyed: jobs with keys may be there (bit 32). watched: the queue's row shows that
-- it is paused or limits what runs, or groups have policies or are held (bits 33 and 34).
create or replace function _queue_flags(queue text, out priorities smallint[], out keyed boolean, out watched boolean)
language sql volatile set search_path from current as $$
    select array(select p from generate_series(-16, 15) p where flags & (1::bigint << (16 + p)) <> 0), flags & 4294967296 <> 0, flags & 25769803776 <> 0
      from _register(queue, 'flags') flags $$;

-- _fast_path_mode is the value of the register fast_path: a time in units of 25 ms * 4096 + the mode * 1024 + the segment's slot. Once the time
-- has moved on a call goes by the skip map and writes the register anew.
create or replace function _fast_path_mode(queue text, out at timestamptz, out mode text, out slot int)
language sql volatile set search_path from current as $$
    select case when path > 0 then to_timestamp(path / 4096 / 40.0) end,
           case when path = 0 then 'by the skip map' else (array['at the position', 'the first that is free', 'few jobs wait'])[path / 1024 % 4 + 1] end,
           case when path > 0 then (path % 1024)::int end
      from _register(queue, 'fast_path') path $$;

-- _seen_end returns since when no number was drawn in a queue, as maintenance saw it, and whether a skip map waits for
-- maintenance. The register holds tenths of a second from bit 28 on, 27 bits of the last number, and that flag in bit
-- 0.
create or replace function _seen_end(queue text, out since timestamptz, out bound_waits boolean)
language sql volatile set search_path from current
as $$ select case when seen >> 28 > 0 then to_timestamp((seen >> 28) / 10.0) end, seen & 1 <> 0 from _register(queue, 'seen') seen $$;

create or replace view queue_internals as
    select q.name as queue, case when q.lifo then 'lifo' else 'fifo' end as ordering, r.turn, r.slot as written_to,
           array(select s.slot from _segment s where s.queue = q.id and s.retired is null order by s.turn) as listed,
           array(select s.slot from _segment s where s.queue = q.id and s.retired is not null order by s.turn) as retired,
           array(select pg_total_relation_size(g.oid) from _segments(q.name) g order by g.slot) as segment_bytes,
           array(select format('segment %s: %s', s.slot, s.trouble) from _segment s where s.queue = q.id and s.trouble is not null) as trouble,
           f.priorities, f.keyed, f.watched, _register(q.name, 'seq') as last_seq,
           p.mode as fast_path, p.slot as fast_path_slot, p.at as fast_path_at, _register(q.name, 'next') as position,
           case when q.lifo then _register(q.name, 'top') end as top,
           case when _register(q.name, 'maintained') > 0 then to_timestamp(_register(q.name, 'maintained') / 1000.0) end as maintained_at,
           e.since as nothing_enqueued_since, e.bound_waits as skip_map_waits
      from _queue q, _ring_position(q.name) r, _queue_flags(q.name) f, _fast_path_mode(q.name) p, _seen_end(q.name) e;

comment on view queue_internals is 'The registers of each queue, decoded, for people who look into one. Only the owner of the schema may read it.';

comment on column queue_internals.turn is 'grows whenever another segment is written to, or one leaves the list';

comment on column queue_internals.written_to is 'slot of the segment that new jobs go to';

comment on column queue_internals.listed is 'slots of the segments that jobs are taken from, in order';

comment on column queue_internals.retired is 'slots of those that are off the list and wait for their TRUNCATE; all others are empty';

comment on column queue_internals.segment_bytes is 'size of each segment with indexes and TOAST, by slot';

comment on column queue_internals.trouble is 'why the maintenance of a segment failed last';

comment on column queue_internals.priorities is 'jobs of these priorities may be there';

comment on column queue_internals.keyed is 'jobs with keys may be there: claims look for those that must wait. Bits 35 and 36 of the register, for deadlines and barriers, are not shown';

comment on column queue_internals.watched is 'the row of the queue has a pause or a limit of running jobs; or a group has a policy or is held';

comment on column queue_internals.last_seq is 'last number that a job was given';

comment on column queue_internals.fast_path is 'how jobs are found: at the position, which each call moves; as the first free one from there; without moving it, while few jobs wait; or by the skip map';

comment on column queue_internals.fast_path_slot is 'in which segment the position is';

comment on column queue_internals.fast_path_at is 'until 25 ms after this the fast path holds; a call writes it anew then';

comment on column queue_internals.position is 'the last number that a call has drawn';

comment on column queue_internals.top is 'of a LIFO queue: how far the sequence had come when nothing was above the position';

comment on column queue_internals.maintained_at is 'when the maintenance of the queue ended last; it is due 250 ms later';

comment on column queue_internals.nothing_enqueued_since is 'since when the sequence has not moved, as maintenance saw it';

comment on column queue_internals.skip_map_waits is 'the next maintain_queue brings the bound of a skip map up to date';

create or replace view outbox_internals as
    select o.name as outbox, pg_sequence_last_value(_q('_' || o.name || '.slot')::regclass)::int as written_to,
           array(select pg_total_relation_size(g.oid) from _segments(o.name) g order by g.slot) as segment_bytes,
           pg_sequence_last_value(_q('_' || o.name || '.seq')::regclass) as last_seq,
           s.name as subscription, h.holder, h.epoch, h.since as held_since, h.lease_until, h.at as written_at, h.settled,
           pg_snapshot_xmin(h.done) as settled_below_xid, pg_snapshot_xmax(h.done) as none_settled_from_xid,
           (select count(*) from pg_snapshot_xip(h.done)) as in_flight, h.low, h.upto is not null as paging, h.pos, h.ahead
      from _outbox o left join _subscription s on s.outbox = o.name left join lateral _head(s.id) h on true;

comment on view outbox_internals is 'The ring of each outbox and the cursor of each of its subscriptions, decoded, for people who look into one. Only the owner of the schema may read it.';

comment on column outbox_internals.written_to is 'slot of the segment that new messages go to';

comment on column outbox_internals.segment_bytes is 'size of each segment with indexes and TOAST, by slot';

comment on column outbox_internals.last_seq is 'last number that a message was given';

comment on column outbox_internals.holder is 'who had the lease last';

comment on column outbox_internals.epoch is 'grows when the lease changes hands';

comment on column outbox_internals.held_since is 'since when the holder has had the lease';

comment on column outbox_internals.lease_until is 'when the lease ends, unless the holder extends it';

comment on column outbox_internals.written_at is 'when the cursor was written last';

comment on column outbox_internals.settled is 'how many messages were settled since the subscription was created';

comment on column outbox_internals.settled_below_xid is 'messages of transactions below this xid are settled';

comment on column outbox_internals.none_settled_from_xid is 'messages of transactions from this xid on are not settled; they have a seq above low';

comment on column outbox_internals.in_flight is 'how many transactions between the two had not ended: their messages are found by xid when they commit';

comment on column outbox_internals.low is 'messages of transactions from none_settled_from_xid on have a seq above this';

comment on column outbox_internals.paging is 'a backlog is read page by page';

comment on column outbox_internals.pos is 'of a backlog, messages up to this seq are settled';

comment on column outbox_internals.ahead is 'settled messages behind others that are not, by seq';
