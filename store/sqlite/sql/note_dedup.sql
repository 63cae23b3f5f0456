-- ?3 is a JSON array of [dedup key, id].
insert or replace into penstock_dedup (queue_id, dedup_key, id, at)
select ?1, json_extract(j.value, '$[0]'), json_extract(j.value, '$[1]'), ?2
  from json_each(?3) j
