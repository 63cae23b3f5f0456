-- What became visible since the cursor. The statement's own snapshot is the cursor's next one:
-- the first row carries it, with the sequence's value read after it was taken.
--   $1 low   every row with xid >= xmax($3) has seq > low
--   $2 xip   transactions in flight at the cursor
--   $3 done  the cursor's snapshot
--   $4 limit
--   $5 subscription
-- The first row has more columns. One is the outbox's oid, so that a reader notices that it was
-- dropped and made anew. Letters say what else there is to read, see outOfBand in
-- outbox_out_of_band.go. The server process has to be the session's own. One by one, the
-- transactions that were in flight are read in order of seq, so that a page of a large one costs no
-- more than a page. Of one that still is, the rows that can be seen are another's, from before a
-- restore.
select coalesce(pg_sequence_last_value({seq}), 0), null::timestamptz, to_regclass({outbox_name})::oid::text,
       concat(case when exists (select from {schema}._dead_letter where subscription = $5::bigint and retry) then 'd' end,
              case when exists (select from {schema}._replay where subscription = $5::bigint) then 'r' end),
       pg_current_snapshot()::text, null::jsonb, int8send(pg_backend_pid())
union all
(select * from (
    (select late.* from unnest($2::xid8[]) x cross join lateral (
        select e.seq, e.created_at, e.id, e.key, e.topic, e.headers, e.payload
          from {outbox} e
         where e.xid = x and e.seq <= $1::bigint
         order by e.seq limit $4::bigint) late
      where pg_visible_in_snapshot(x, pg_current_snapshot())
      order by late.seq limit $4::bigint)
    union all
    (select e.seq, e.created_at, e.id, e.key, e.topic, e.headers, e.payload
       from {outbox} e
      where e.seq > $1::bigint and not pg_visible_in_snapshot(e.xid, $3::pg_snapshot)
      order by e.seq limit $4::bigint)
) new limit $4::bigint)
