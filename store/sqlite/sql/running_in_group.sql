-- Counted from leases: no worker that dies takes a place with it.
select count(*) from penstock_leases r cross join {jobs} j on j.seq = r.seq where r.queue_id = {queue} and r.until > {clock} and j.group_key = {group}
