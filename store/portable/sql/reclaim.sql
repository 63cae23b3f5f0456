delete from {table} t
 using unnest($1::smallint[], $2::timestamptz[], $3::bigint[]) d(bucket, ts, seq)
 where t.bucket = d.bucket and t.ts = d.ts and t.seq = d.seq
