-- How many jobs may start now under each limit.
case when i.held_until * 1000 > ({clock_micros} * 1000) then 0
     else min(case when i.max_running = 0 then 2147483647 else max(i.max_running - {running}, 0) end,
                case when i.pace = 0 then 2147483647 else max((({clock_micros} * 1000) + i.slack - {start_at}) / i.pace, 0) end) end
