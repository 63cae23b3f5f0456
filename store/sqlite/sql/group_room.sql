-- Does the group have limits, does it or the queue have a rate, and how many jobs may start now?
select coalesce({in_turn}, 0) = 1, coalesce(max(case when i.pace > 0 then 1 else 0 end), 0) = 1, coalesce(min({room_by}), 2147483647)
  from {limits}
