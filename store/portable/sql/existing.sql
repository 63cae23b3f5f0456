-- Those that are there. A server that was promoted without the last that was committed may lack some that were read.
select t.seq
  from unnest($1::smallint[], $2::timestamptz[], $3::bigint[]) d(bucket, ts, seq)
  join {table} t on t.bucket = d.bucket and t.ts = d.ts and t.seq = d.seq
