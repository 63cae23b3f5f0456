select seq
  from penstock_dead_letters
 where subscription_id = :subscription
   and (:seqs is null or seq in (select value from json_each(:seqs)))
   and (:ids is null
        or id in (select value from json_each(:ids))
        or coalesce(id, '') = '' and seq || '-' || created_at in (select value from json_each(:derived)))
   and (:key is null or key = :key)
   and (:topic is null or topic = :topic)
   and (:error is null or json_valid(history) and instr(json_extract(history, '$.failures[#-1].error'), :error) > 0)
   and (:before is null or at < :before)
   and (:after is null or at > :after)
   and (:after_seq is null or seq > :after_seq)
 order by seq
 limit :limit
