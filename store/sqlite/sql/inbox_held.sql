-- ?1 inbox, ?2 key, ?3 predecessor, ?4 id, each null for any, ?5 at most how many.
select h.id, h.key, h.headers, length(h.payload), case when ?4 is not null then h.payload end, h.previous,
       exists (select 1 from penstock_held p where p.inbox_id = ?1 and p.id = h.previous), h.at, h.due
  from penstock_held h
 where h.inbox_id = ?1 and (?2 is null or h.key = ?2) and (?3 is null or h.previous = ?3) and (?4 is null or h.id = ?4)
 order by h.due, h.n
 limit ?5
