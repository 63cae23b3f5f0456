e.subscription_id = {sub} and e.state in (0, 3) and e.seq >= {from_seq} {where}
   and exists (select 1 from {table} t where t.seq = e.seq)
