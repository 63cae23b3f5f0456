-- Counted from leases: no worker that dies takes a place with it. One whose time is over counts until it is ended, because an extension of it
-- may be under way. No lease ends before {checked}, unless the clock was set back.
select count(*) from {schema}.leases r where r.queue_id = {queue} and r.group_key = {group} and r.until > least({checked}, (select clock_timestamp()))
