-- The job t has to wait for another one of its key. The first of these is asked for in the order of the whole index: MySQL sorts all of them otherwise.
coalesce(t.`key`, '') <> '' and (
  exists (select 1 from {schema}.leases b force index (leases_key) where b.queue_id = {queue} and b.`key` = t.`key` and b.seq <> t.seq)
  or exists (select 1 from {schema}.tries b force index (tries_key) where b.queue_id = {queue} and b.`key` = t.`key` and b.seq < t.seq)
  or not exists (select 1 from {schema}.tries m force index (primary) where m.queue_id = {queue} and m.seq = t.seq)
     and (exists (select 1 from {schema}.tries b force index (tries_key) where b.queue_id = {queue} and b.`key` = t.`key` and b.seq > t.seq)
          or t.seq <> (select b.seq from {jobs} b force index (of_key) where b.`key` = t.`key` order by b.`key`, b.ts, b.seq limit 1)))
