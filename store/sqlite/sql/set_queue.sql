update penstock_queues
   set paused = coalesce(:paused, paused),
       max_attempts = coalesce(:max_attempts, max_attempts),
       max_running = coalesce(:max_running, max_running),
       dedup_window = coalesce(:dedup_window, dedup_window)
 where name = :queue
