-- Its first attempt begins later. A row that is there says so already.
insert into {schema}.tries (queue_id, seq, group_key, `key`, due, attempts)
select {queue}, t.seq, t.group_key, t.`key`, {due}, 0 from {jobs} t force index (primary) where t.seq = {job}
    on duplicate key update {schema}.tries.due = {schema}.tries.due
