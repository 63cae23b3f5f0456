delete from {table} t
 using unnest($4::smallint[], $5::timestamptz[], $6::bigint[]) d(bucket, ts, seq)
 where t.bucket = d.bucket and t.ts = d.ts and t.seq = d.seq
   and exists (select from {lease})
   and exists (select from {schema}.subscriptions m where m.id = $1 and not m.marks)
   and exists (select from {schema}.progress p where p.subscription_id = $1 and p.epoch = $2 and p.attempt = $3 and p.settled >= 0)
