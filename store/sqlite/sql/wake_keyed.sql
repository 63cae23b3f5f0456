-- Jobs that have become due and whose key does not know them yet. ?3 is a JSON
-- array of their seqs.
insert into penstock_keyed (queue_id, key, id, group_key, priority, rank)
select ?1, t.key, coalesce(t.id, t.seq), t.group_key, t.priority, ?2 * t.seq
  from json_each(?3) j
 cross join {table} t on t.seq = j.value
 where t.key <> ''
   and not exists (select 1 from penstock_busy b where b.queue_id = ?1 and b.key = t.key and b.seq = t.seq)
