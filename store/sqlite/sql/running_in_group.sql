-- Counted from leases: no worker that dies takes a place with it. One whose time is over counts until it is ended: the clock may be set back.
select count(*) from penstock_leases r cross join {jobs} j on j.seq = r.seq where r.queue_id = {queue} and j.group_key = {group}
