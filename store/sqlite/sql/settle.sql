-- The cursor moves; the epoch is checked by the same statement that writes.
update penstock_subscriptions
   set position = ?, ahead = ?, settles = ?, settled = settled + ?, rate = ?, rate_at = ?
 where id = ? and epoch = ?
