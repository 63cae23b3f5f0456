-- The others: they have no key, or are what it is busy with.
insert into penstock_ready (queue_id, group_key, priority, rank)
select ?1, t.group_key, t.priority, ?2 * t.seq
  from json_each(?3) j
 cross join {table} t on t.seq = j.value
 where coalesce(t.key, '') = ''
    or exists (select 1 from penstock_busy b where b.queue_id = ?1 and b.key = t.key and b.seq = t.seq)
