-- {notes} are [dedup key, id].
insert or replace into penstock_dedup (queue_id, dedup_key, id, at)
select {queue}, json_extract(j.value, '$[0]'), json_extract(j.value, '$[1]'), {clock}
  from json_each({notes}) j
