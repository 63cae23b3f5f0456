-- Backlog of one subscription: what its durable cursor does not cover, by the
-- same two probes as reclaim.
--   $1 xip of the window's end, $2 bound, $3 done, $4 upto, $5 pos, $6 what is settled ahead of it, $7 count up to, or null
with unsettled as (
    select seq, created_at from {outbox} e where e.xid = any ($1::xid8[]) and e.seq + 0 <= $2::bigint and not e.seq <@ $6::int8multirange
    union all
    (select seq, created_at from {outbox} e
     where e.seq > $2::bigint
       and not pg_visible_in_snapshot(e.xid, $3::pg_snapshot)
       and not (pg_visible_in_snapshot(e.xid, $4::pg_snapshot) and e.seq <= $5::bigint)
       and not e.seq <@ $6::int8multirange
     order by e.seq)) -- the oldest first, in whichever segment
select count(*), coalesce(extract(epoch from clock_timestamp() - min(c.created_at)), 0)::float8
  from (select created_at from unsettled limit $7::bigint) c
