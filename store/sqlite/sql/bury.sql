-- A message that is given up, copied before the cursor passes it.
insert or replace into penstock_dead_letters
  (subscription_id, seq, id, key, topic, headers, payload, created_at, attempt, error, at)
select ?, seq, id, key, topic, headers, payload, created_at, ?, ?, ?
  from {table}
 where seq = ?
