-- The heads of the parked keys that are due, from a place in their order on.
select l.id, l.due, l.alone, p.number, coalesce(p.history, ''),
       exists (select 1 from penstock_parked b where b.line_id = l.id and b.seq > l.head),
       p.seq, p.created_at, coalesce(p.id, ''), coalesce(p.key, ''), p.topic, coalesce(p.headers, ''), p.payload
  from penstock_lines l
 cross join penstock_parked p on p.line_id = l.id and p.seq = l.head
 where l.subscription_id = ? and l.due <= ? and (l.due, l.id) > (?, ?)
 order by l.due, l.id
