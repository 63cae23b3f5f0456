update {schema}.entries e
   set state = 3
 where e.subscription_id = $1 and e.state in (0, 3)
   and e.seq >= $2 and ($3 = 0 or e.seq <= $3)
   and ($4::timestamptz is null or e.ts >= $4) and ($5::timestamptz is null or e.ts < $5)
   and exists (select from {table} t where t.bucket = e.bucket and t.ts = e.ts and t.seq = e.seq)
