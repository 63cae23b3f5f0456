-- Jobs that came first with dedup keys, as a JSON array of [dedup key, id]. ?2 is
-- a JSON array of dedup keys.
select json_group_array(json_array(d.dedup_key, d.id))
  from json_each(?2) j
 cross join penstock_dedup d on d.queue_id = ?1 and d.dedup_key = j.value
 where d.at > ?3
