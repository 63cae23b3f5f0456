-- Dead letters that go back into their queue, at its end. ?2 is a JSON array of
-- ids.
insert into {table} (id, created_at, priority, group_key, key, headers, payload)
select d.id, d.created_at, d.priority, d.group_key, d.key, d.headers, d.payload
  from json_each(?2) j
 cross join penstock_dead_jobs d on d.queue_id = ?1 and d.id = j.value
 order by j.key
