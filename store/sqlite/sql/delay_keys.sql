-- Parked keys whose head is to wait for another attempt. ?1 is a JSON array of
-- [key, seq, due].
update penstock_parked_keys
   set due = r.due
  from (select json_extract(value, '$[0]') as key_id, json_extract(value, '$[1]') as seq, json_extract(value, '$[2]') as due from json_each(?1)) r
 where penstock_parked_keys.id = r.key_id and head = r.seq and penstock_parked_keys.due is not null
