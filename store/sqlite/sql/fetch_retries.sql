-- Dead letters that were sent back after a given retry number.
select retry, attempt, seq, created_at, coalesce(id, ''), coalesce(key, ''), topic, coalesce(headers, ''), payload
  from penstock_dead_letters
 where subscription_id = ? and retry > ?
 order by retry
 limit ?
