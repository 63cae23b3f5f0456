delete from {schema}.entries
 where seq = any ($2::bigint[]) and subscription_id in (select s.id from {schema}.subscriptions s where s.outbox_id = $1)
