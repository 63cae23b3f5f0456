max(case when not i.whole and (i.max_running > 0 or i.pace > 0) then 1 else 0 end)
