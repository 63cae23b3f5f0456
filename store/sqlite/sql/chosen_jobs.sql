select id
  from penstock_dead_jobs
 where queue_id = :queue
   and (:ids is null or id in (select value from json_each(:ids)))
   and (:key is null or key = :key)
   and (:group_key is null or group_key = :group_key)
   and (:error is null or json_valid(history) and instr(json_extract(history, '$.failures[#-1].error'), :error) > 0)
   and (:before is null or at < :before)
   and (:after is null or at > :after)
   and (:after_id is null or id > :after_id)
 order by id
 limit :limit
