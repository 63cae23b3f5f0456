-- And their keys, which have nothing due.
insert into penstock_parked_keys (subscription_id, key, seq, head, due)
select distinct h.subscription_id, h.key, 0, null, null
  from json_each(?2) j
  join penstock_holds h on h.subscription_id = ?1 and h.seq = j.value
 where true
    on conflict (subscription_id, key, seq) do update set due = null
