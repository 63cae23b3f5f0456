(select r.seq
   from {schema}.entries r
  where r.subscription_id = {sub} and r.parked_key = {key} and (r.ts > {ts} or r.ts = {ts} and r.seq > {head})
  order by r.ts, r.seq
  limit {most})
