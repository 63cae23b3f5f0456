-- The others: they have no key, or are what it is busy with.
insert into penstock_ready (queue_id, group_key, priority, rank)
select {queue}, t.group_key, t.priority, {sign}t.seq
  from json_each({seqs}) j
 cross join {jobs} t on t.seq = j.value
 where coalesce(t.key, '') = ''
    or exists (select 1 from penstock_busy b where b.queue_id = {queue} and b.key = t.key and b.seq = t.seq)
