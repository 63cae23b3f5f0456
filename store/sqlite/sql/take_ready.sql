-- Those that were claimed: all up to the last one.
delete from penstock_ready
 where queue_id = ? and group_key = ? and (priority, rank) <= (?, ?)
