-- Counted from leases: no worker that dies takes a place with it. One whose time is over counts until it is ended, because an extension of it
-- may be under way. No lease ends before {checked}, unless the clock was set back.
select count(*) from {schema}.leases r force index (leases_second)
 where r.queue_id = {queue} and r.second >= to_seconds(least(timestamp({checked}), utc_timestamp(6))) and r.until > least(timestamp({checked}), utc_timestamp(6)) and r.group_key = {group}
