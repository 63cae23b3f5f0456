-- A dead letter that was sent back and is given up again.
update penstock_dead_letters
   set retry = null, attempt = ?, error = ?, at = ?
 where subscription_id = ? and seq = ?
