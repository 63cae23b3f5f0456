-- Parked keys of which messages came back: where there is another head now, it is due at
-- once.
update penstock_parked_keys
   set head = first.seq,
       due = case when penstock_parked_keys.due is null or penstock_parked_keys.head = first.seq then penstock_parked_keys.due else ?1 end
  from (select j.value as key_id, (select min(p.seq) from penstock_parked p where p.key_id = j.value) as seq from json_each(?2) j) first
 where penstock_parked_keys.id = first.key_id
