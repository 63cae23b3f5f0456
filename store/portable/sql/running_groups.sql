select r.group_key, count(*) as n from {schema}.leases r where r.queue_id = {queue} and r.until > (select clock_timestamp()) group by r.group_key
