insert into {schema}.entries (subscription_id, seq, bucket, ts, state)
select $1, d.seq, d.bucket, d.ts, 0
  from unnest($4::smallint[], $5::timestamptz[], $6::bigint[]) d(bucket, ts, seq)
  join {table} t on t.bucket = d.bucket and t.ts = d.ts and t.seq = d.seq
 where exists (select from {lease})
   and exists (select from {schema}.subscriptions m where m.id = $1 and m.marks)
   and exists (select from {schema}.progress p where p.subscription_id = $1 and p.epoch = $2 and p.attempt = $3 and p.settled >= 0)
   and not exists (select from {schema}.entries e where e.subscription_id = $1 and e.seq = d.seq)
