-- Parked keys on which a hold ended: due at once. A key has one hold, because all that comes after it
-- is parked. ?2 is a JSON array of keys.
update penstock_parked_keys
   set due = ?1
 where id in (select value from json_each(?2))
