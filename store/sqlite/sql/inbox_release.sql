-- ?1 inbox, ?2 key, ?3 predecessor, ?4 id, each null for any, ?5 now. They become due in the
-- order in which they would be; what is due already stays so.
update penstock_held set due = min(due, ?5 + o.place)
  from (select h.n as held, row_number() over (order by h.due, h.n) as place
          from penstock_held h
         where h.inbox_id = ?1 and (?2 is null or h.key = ?2) and (?3 is null or h.previous = ?3) and (?4 is null or h.id = ?4)) o
 where n = o.held
