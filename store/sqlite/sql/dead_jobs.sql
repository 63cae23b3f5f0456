select d.history, d.at, d.id, d.group_key, d.priority, d.created_at, coalesce(d.key, ''), coalesce(d.headers, ''), d.payload
  from penstock_dead_jobs d
 where d.queue_id = :queue and d.id in ({chosen})
 order by d.id
