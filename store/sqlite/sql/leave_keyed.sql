-- As occupy.
delete from penstock_keyed
 where queue_id = {queue} and (key, id) in (select json_extract(j.value, '$[1]'), json_extract(j.value, '$[2]') from json_each({keys}) j)
