-- One chunk of rows that are no longer needed. The lowest positions are read by the statement that
-- deletes, so that a subscription or a replay made meanwhile loses nothing it was promised, nor
-- does a retention.
delete from {table}
 where seq <= min(:last,
         (select min(position) from penstock_subscriptions where outbox_id = :outbox),
         (select coalesce(min(r.position), :last) from penstock_replays r join penstock_subscriptions s on s.id = r.subscription_id where s.outbox_id = :outbox))
   and exists (select 1 from penstock_outboxes where id = :outbox and retention_age = :age and retention_bytes = :bytes)
