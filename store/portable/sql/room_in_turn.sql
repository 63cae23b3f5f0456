-- As room, of a claim that takes turns with no other of the group: only a group without limits has room for it.
coalesce((select case when {in_turn} = 1 then 0 else min({room_by}) end from {limits}), 2147483647)
