delete from penstock_keyed
 where queue_id = ?1 and (key, seq) in (select json_extract(j.value, '$[1]'), json_extract(j.value, '$[0]') from json_each(?2) j)
