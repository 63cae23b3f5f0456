-- It leaves its place to begin later, unless it is in the time table.
delete from penstock_ready
 where queue_id = {queue} and (group_key, priority, rank) = (select t.group_key, t.priority, {sign}t.seq from {jobs} t where t.seq = {job});

delete from penstock_keyed
 where queue_id = {queue} and (key, id) = (select t.key, coalesce(t.id, t.seq) from {jobs} t where t.seq = {job});

insert or ignore into penstock_scheduled (queue_id, seq, due) values ({queue}, {job}, {due})
