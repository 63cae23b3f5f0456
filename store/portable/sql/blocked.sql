-- The job t has to wait for another one of its key.
coalesce(t.key, '') <> '' and (
  exists (select from {schema}.leases b where b.queue_id - {queue} = 0 and b.key = t.key and b.key <> '' and b.seq <> t.seq)
  or exists (select from {schema}.tries b where b.queue_id - {queue} = 0 and b.key = t.key and b.key <> '' and b.seq <> t.seq
       and (select (o.created_at, o.seq) < (t.created_at, t.seq) from {jobs} o
             where o.group_key = b.group_key and o.priority = b.priority and o.ts = b.ts and o.seq = b.seq))
  or not exists (select from {schema}.tries m where m.seq = t.seq)
     and (exists (select from {schema}.tries b where b.queue_id - {queue} = 0 and b.key = t.key and b.key <> '' and b.seq <> t.seq)
          or (select (b.ts, b.seq) < (t.ts, t.seq) from {jobs} b where b.key = t.key and b.key <> '' order by b.ts, b.seq limit 1)))
