-- One chunk of rows that are no longer needed. The lowest position is read by the statement that deletes, so that a subscription or a replay made
-- meanwhile loses nothing it was promised, nor does a retention.
delete from {table}
 where seq > {after}
   and seq <= min({last}, (select min(position) from penstock_subscriptions where outbox_id = {outbox}))
   and seq not in ({needed})
   and exists (select 1 from penstock_outboxes where id = {outbox} and keep_age = {age} and keep_bytes = {bytes})
