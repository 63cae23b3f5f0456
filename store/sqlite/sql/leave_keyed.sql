-- ?2 is a JSON array of [seq, key, id].
delete from penstock_keyed
 where queue_id = ?1 and (key, id) in (select json_extract(j.value, '$[1]'), json_extract(j.value, '$[2]') from json_each(?2) j)
