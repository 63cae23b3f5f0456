-- Counted from leases: no worker that dies takes a place with it.
select count(*) from {schema}.leases r where r.queue_id = {queue} and r.group_key = {group} and r.until > (select clock_timestamp())
