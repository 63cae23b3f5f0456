-- Jobs that have become due and whose key does not know them yet.
insert into penstock_keyed (queue_id, key, id, group_key, priority, rank)
select {queue}, t.key, coalesce(t.id, t.seq), t.group_key, t.priority, {sign}t.seq
  from json_each({seqs}) j
 cross join {jobs} t on t.seq = j.value
 where t.key <> ''
   and not exists (select 1 from penstock_busy b where b.queue_id = {queue} and b.key = t.key and b.seq = t.seq)
