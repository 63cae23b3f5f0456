select d.attempt, d.error, d.at, d.seq, d.created_at, coalesce(d.id, ''), coalesce(d.key, ''), d.topic, coalesce(d.headers, ''), d.payload
  from penstock_dead_letters d
  join penstock_subscriptions s on s.id = d.subscription_id
 where s.outbox_id = ? and s.name = ? and d.retry is null
 order by d.at, d.seq
 limit ?
