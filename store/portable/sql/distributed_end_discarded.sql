delete from {table} t
 where t.ts = any ({times}::timestamptz[]) and t.seq = any ({seqs}::bigint[])
