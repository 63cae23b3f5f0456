-- Counted from leases: no worker that dies takes a place with it.
select count(*) from {schema}.leases r force index (leases_second) where r.queue_id = {queue} and r.second >= to_seconds(utc_timestamp(6)) and r.until > utc_timestamp(6) and r.group_key = {group}
