-- The next page of the window (done, upto], in order of seq: first what was in
-- flight at done and has a seq up to low, then everything above low.
--   $1 low, $2 xip, $3 done   as in poll.sql
--   $4 pos   rows up to this seq were returned by earlier pages
--   $5 upto  the window's end, $6 high  the sequence's value at its end
--   $7 limit
select * from (
    (select late.* from unnest($2::xid8[]) x cross join lateral (
        select e.seq, e.created_at, e.id, e.key, e.topic, e.headers, e.payload
          from {outbox} e
         where e.xid = x and e.seq > $4::bigint and e.seq <= $1::bigint
         order by e.seq limit $7::bigint) late
      where pg_visible_in_snapshot(x, $5::pg_snapshot)
      order by late.seq limit $7::bigint)
    union all
    (select e.seq, e.created_at, e.id, e.key, e.topic, e.headers, e.payload
       from {outbox} e
      where e.seq > greatest($1::bigint, $4::bigint) and e.seq <= $6::bigint
        and not pg_visible_in_snapshot(e.xid, $3::pg_snapshot)
        and pg_visible_in_snapshot(e.xid, $5::pg_snapshot)
      order by e.seq limit $7::bigint)
) page limit $7::bigint
