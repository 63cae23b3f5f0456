-- After a restore into another cluster the stored xids and snapshots are that
-- cluster's. Messages that the old cursor had not settled are above its bound or were in flight;
-- some of them may have been delivered and come again.
--   $1 pos, $2 high  the part to read, by seq
--   $3 bound, $4 xip of the old cursor
--   $5 limit
select e.seq, e.created_at, e.id, e.key, e.topic, e.headers, e.payload
  from {outbox} e
 where e.seq > $1::bigint and e.seq <= $2::bigint
   and (e.seq > $3::bigint or e.xid = any ($4::xid8[]))
 order by e.seq limit $5::bigint
