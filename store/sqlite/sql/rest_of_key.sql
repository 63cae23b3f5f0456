-- The messages parked behind a message.
select number, coalesce(history, ''),
       seq, created_at, coalesce(id, ''), coalesce(key, ''), topic, coalesce(headers, ''), payload
  from penstock_parked
 where key_id = ? and seq > ?
 order by seq
 limit ?
