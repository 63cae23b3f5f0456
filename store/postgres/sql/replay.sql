-- A page of messages to deliver again, in order of seq.
--   $1 pos, $2 to seq, $3 created from, $4 created before
--   $5 done, $6 upto, $7 pos in it, $8 low of done   the cursor at the request, $9 what was settled ahead of it
--   $10 limit
select e.seq, e.created_at, e.id, e.key, e.topic, e.headers, e.payload
  from {outbox} e
 where e.seq > $1::bigint and e.seq <= $2::bigint
   and e.created_at >= $3::timestamptz and e.created_at < $4::timestamptz
   and (pg_visible_in_snapshot(e.xid, $5::pg_snapshot) or e.seq <= $7::bigint and pg_visible_in_snapshot(e.xid, $6::pg_snapshot)
        or e.seq <= $8::bigint and e.xid >= pg_snapshot_xmax($5::pg_snapshot) or e.seq <@ $9::int8multirange)
 order by e.seq limit $10::bigint
