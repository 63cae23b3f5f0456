-- The lines, those due soonest first. What a held one waits for is a dead letter,
-- or was one and is on its way back.
select coalesce(p.key, l.key),
       (select count(*) from penstock_parked c where c.line_id = l.id),
       coalesce(h.seq, l.head), coalesce(l.due, 0),
       coalesce(d.history, b.history, case when h.seq is null then p.history end, '')
  from penstock_lines l
  left join penstock_parked p on p.line_id = l.id and p.seq = l.head
  left join penstock_holds h on l.due is null and h.subscription_id = l.subscription_id
   and h.seq = (select min(f.seq) from penstock_holds f where f.subscription_id = l.subscription_id and f.key = l.key)
  left join penstock_dead_letters d on d.subscription_id = l.subscription_id and d.seq = h.seq
  left join penstock_lines a on a.subscription_id = l.subscription_id and a.key = '' and a.alone = h.seq
  left join penstock_parked b on b.line_id = a.id and b.seq = h.seq
 where l.subscription_id = ?
 order by l.due is null, l.due, coalesce(h.seq, l.head)
 limit ?
