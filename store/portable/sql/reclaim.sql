delete from {table} t
 using unnest({buckets}::smallint[], {times}::timestamptz[], {seqs}::bigint[]) d(bucket, ts, seq)
 where t.bucket = any (array[d.bucket]) and t.ts = d.ts and t.seq = d.seq
