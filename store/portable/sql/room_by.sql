-- How many jobs may start now under each limit.
case when i.held_until * 1000 > c.now then 0
     else least(case when i.max_running = 0 then 2147483647 else greatest(i.max_running - {running}, 0) end,
                case when i.pace = 0 then 2147483647 else greatest((c.now + i.slack - {start_at}) / i.pace, 0) end) end
