-- One chunk of what every subscription has settled. The lowest position is
-- read by the statement that deletes, so that a subscription made meanwhile
-- loses nothing it was promised.
delete from {table}
 where seq <= min(?, (select min(position) from penstock_subscriptions where outbox_id = ?))
