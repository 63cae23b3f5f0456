-- It has begun before, or was put off: now it begins anew, and perhaps later.
update {schema}.tries force index (primary)
   set due = case when {due} > utc_timestamp(6) then {due} else utc_timestamp(6) end, attempts = 0, since = null, failures = null
 where queue_id = {queue} and seq = {job}
