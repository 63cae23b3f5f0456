-- It stands only in the time table: now it begins anew, and perhaps later. One that waits for barriers continues to wait.
update penstock_scheduled set due = max({due}, {clock}) where queue_id = {queue} and seq = {job} and due < 9000000000000000000
