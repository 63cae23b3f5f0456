-- Those that were claimed: all up to the last one.
delete from penstock_ready
 where queue_id = {queue} and group_key = {group} and (priority, rank) <= ({priority}, {rank})
