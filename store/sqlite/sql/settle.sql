-- The cursor moves. The transaction has read the epoch, and no other session writes before it ends.
update penstock_subscriptions
   set position = ?, ahead = ?, settles = ?, settled = settled + ?, rate = ?, rate_at = ?
 where id = ?
