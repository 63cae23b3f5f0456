-- Parked messages that were refused once more. ?1 is a JSON array of
-- [number, history].
update penstock_parked
   set history = r.history
  from (select json_extract(value, '$[0]') as number, json_extract(value, '$[1]') as history from json_each(?1)) r
 where penstock_parked.number = r.number
