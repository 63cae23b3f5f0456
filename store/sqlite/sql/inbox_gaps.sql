-- ?1 inbox, ?2 since when, ?3 at most how many.
select g.id, g.key, coalesce(g.next, ''), g.at, g.discarded,
       exists (select 1 from penstock_received r where r.inbox_id = ?1 and r.id = g.id)
  from penstock_gaps g
 where g.inbox_id = ?1 and g.at >= ?2
 order by g.at desc
 limit ?3
