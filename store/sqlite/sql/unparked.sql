not exists (select 1 from penstock_parked_keys k join penstock_parked p on p.key_id = k.id and p.seq = t.seq
             where k.subscription_id = :subscription and k.key = cast(coalesce(t.key, '') as text) and k.seq = 0)
   and not exists (select 1 from penstock_parked_keys k
             where k.subscription_id = :subscription and k.key = '' and k.seq = t.seq)
   and not exists (select 1 from penstock_dead_letters d
             where d.subscription_id = :subscription and d.seq = t.seq)
