delete from penstock_dedup
 where queue_id = ?1
   and dedup_key in (select d.dedup_key from penstock_dedup d where d.queue_id = ?1 and d.at <= ?2 order by d.at limit ?3)
