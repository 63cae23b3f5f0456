-- Jobs that wait for a barrier with a dead job, and are to die with it, are dead letters too.
insert into penstock_dead_jobs (queue_id, seq, group_key, priority, key, headers, payload, created_at, history, at)
select {queue}, t.seq, t.group_key, t.priority, t.key, t.headers, t.payload, t.created_at,
       json_object('failures', json_array(json_object('at', strftime('%Y-%m-%dT%H:%M:%fZ', 'now'), 'error', 'cancelled: a job that holds barrier ' || min(w.barrier) || ' is dead'))), {clock}
  from penstock_barriers b
 cross join penstock_waits w on w.barrier = b.barrier and w.on_dead = 'cancel'
 cross join {jobs} t on t.seq = w.seq
 where b.queue_id = {queue} and b.dead > 0
 group by w.seq
