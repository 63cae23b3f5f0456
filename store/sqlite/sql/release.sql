-- Parked keys on which a hold ended: due at once, unless there is another one. ?2 is a
-- JSON array of keys.
update penstock_parked_keys
   set due = ?1
 where id in (select value from json_each(?2))
   and not exists (select 1 from penstock_holds h where h.subscription_id = penstock_parked_keys.subscription_id and h.key = penstock_parked_keys.key)
