-- The lines, those due soonest first. A held line waits for a dead letter, or for one on its way
-- back.
select coalesce(p.key, k.key),
       (select count(*) from penstock_parked c where c.key_id = k.id),
       coalesce(h.seq, k.head), coalesce(k.due, 0),
       coalesce(d.history, b.history, case when h.seq is null then p.history end, '')
  from penstock_parked_keys k
  left join penstock_parked p on p.key_id = k.id and p.seq = k.head
  left join penstock_holds h on k.due is null and h.subscription_id = k.subscription_id
   and h.seq = (select min(f.seq) from penstock_holds f where f.subscription_id = k.subscription_id and f.key = k.key)
  left join penstock_dead_letters d on d.subscription_id = k.subscription_id and d.seq = h.seq
  left join penstock_parked_keys a on a.subscription_id = k.subscription_id and a.key = '' and a.seq = h.seq
  left join penstock_parked b on b.key_id = a.id and b.seq = h.seq
 where k.subscription_id = ?
 order by k.due is null, k.due, coalesce(h.seq, k.head)
 limit ?
