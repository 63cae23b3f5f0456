-- Which messages of a page have a parked key.
select t.seq
  from {table} t
 where t.seq between ? and ?
   and exists (select 1 from penstock_parked_keys k where k.subscription_id = ? and k.key = cast(t.key as text) and k.seq = 0)
 order by t.seq
