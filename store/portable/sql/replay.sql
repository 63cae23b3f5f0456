update {schema}.entries e
   set state = 3, due = clock_timestamp()
 where e.subscription_id = {sub} and e.state in (0, 3)
   and e.seq >= {from_seq} and ({to_seq} = 0 or e.seq <= {to_seq})
   and ({from}::timestamptz is null or e.ts >= {from}) and ({to}::timestamptz is null or e.ts < {to})
   and exists (select from {table} t where t.bucket = e.bucket and t.ts = e.ts and t.seq = e.seq)
