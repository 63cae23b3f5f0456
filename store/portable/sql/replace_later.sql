-- Its first attempt begins later.
insert into {schema}.tries (queue_id, seq, group_key, priority, ts, key, due, attempts)
select {queue}, t.seq, t.group_key, t.priority, t.ts, t.key, {due}, 0
  from {jobs} t
 where t.key = {key} and t.key <> '' and t.seq = {job} and (select a.seq from {schema}.tries a where a.seq = t.seq) is null
