-- The heads of the parked keys that are due, from a place in their order on.
select k.id, k.due, k.seq, p.number, coalesce(p.history, ''),
       exists (select 1 from penstock_parked b where b.key_id = k.id and b.seq > k.head),
       p.seq, p.created_at, coalesce(p.id, ''), coalesce(p.key, ''), p.topic, coalesce(p.headers, ''), p.payload
  from penstock_parked_keys k
 cross join penstock_parked p on p.key_id = k.id and p.seq = k.head
 where k.subscription_id = ? and k.due <= ? and (k.due, k.id) > (?, ?)
 order by k.due, k.id
