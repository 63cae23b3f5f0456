-- Backlog of one subscription: what its durable cursor does not cover, by the
-- same two probes as reclaim.
--   $1 xip of the window's end, $2 bound, $3 done, $4 upto, $5 pos, $6 what is settled ahead of it
select count(*), coalesce(extract(epoch from clock_timestamp() - min(created_at)), 0)::float8
  from (select seq, created_at from {outbox} e where e.xid = any ($1::xid8[]) and e.seq + 0 <= $2::bigint
        union all
        select seq, created_at from {outbox} e
         where e.seq > $2::bigint
           and not pg_visible_in_snapshot(e.xid, $3::pg_snapshot)
           and not (pg_visible_in_snapshot(e.xid, $4::pg_snapshot) and e.seq <= $5::bigint)) unsettled
 where not seq <@ $6::int8multirange
