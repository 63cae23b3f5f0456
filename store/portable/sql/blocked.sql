-- The job t has to wait for another one of its key.
coalesce(t.key, '') <> '' and (
  exists (select from {schema}.leases b where b.queue_id - $1 = 0 and b.key = t.key and b.key <> '' and b.seq <> t.seq)
  or exists (select from {schema}.tries b where b.queue_id - $1 = 0 and b.key = t.key and b.key <> '' and b.seq - t.seq < 0)
  or not exists (select from {schema}.tries m where m.seq = t.seq)
     and (exists (select from {schema}.tries b where b.queue_id - $1 = 0 and b.key = t.key and b.key <> '' and b.seq - t.seq > 0)
          or (select (b.ts, b.seq) < (t.ts, t.seq) from {table} b where b.key = t.key and b.key <> '' order by b.ts, b.seq limit 1)))
