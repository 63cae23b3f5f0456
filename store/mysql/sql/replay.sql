update {schema}.entries e
   set e.state = 3, e.due = utc_timestamp(6)
 where e.subscription_id = {sub} and e.state in (0, 3)
   and e.seq >= {from_seq} and ({to_seq} = 0 or e.seq <= {to_seq})
   and ({from} is null or e.ts >= {from}) and ({to} is null or e.ts < {to})
   and exists (select 1 from {table} t where t.seq = e.seq)
