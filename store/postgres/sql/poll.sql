-- What became visible since the cursor. The statement's own snapshot is the tick:
-- the first row carries it, with the sequence's value read after it was taken.
--   $1 low   every row with xid >= xmax($3) has seq > low
--   $2 xip   transactions in flight at the cursor
--   $3 done  the cursor's snapshot
--   $4 limit
-- seq + 0 keeps the first branch on the xid index whatever the statistics say.
select coalesce(pg_sequence_last_value({seq}), 0), null::timestamptz, null::text, null::text, pg_current_snapshot()::text, null::jsonb, null::bytea
union all
(select * from (
    (select e.seq, e.created_at, e.id, e.key, e.topic, e.headers, e.payload
       from {outbox} e
      where e.xid = any ($2::xid8[]) and e.seq + 0 <= $1::bigint
      order by e.seq + 0 limit $4::bigint)
    union all
    (select e.seq, e.created_at, e.id, e.key, e.topic, e.headers, e.payload
       from {outbox} e
      where e.seq > $1::bigint and not pg_visible_in_snapshot(e.xid, $3::pg_snapshot)
      order by e.seq limit $4::bigint)
) new limit $4::bigint)
