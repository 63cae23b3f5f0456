-- So many of these messages are settled: those that are there. A server that was promoted without the last that was committed
-- may lack some that were read.
insert into {schema}.progress (subscription_id, epoch, attempt, settled)
select $1, $2, $3,
       (select count(*)
          from unnest($4::smallint[], $5::timestamptz[], $6::bigint[]) d(bucket, ts, seq)
          join {table} t on t.bucket = d.bucket and t.ts = d.ts and t.seq = d.seq
         where not exists (select from {schema}.entries e where e.subscription_id = $1 and e.seq = d.seq))
 where exists (select from {lease})
   and not exists (select from {schema}.progress p where p.subscription_id = $1 and p.epoch = $2 and p.attempt = $3)
