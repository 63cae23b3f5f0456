not exists (select 1 from penstock_lines l join penstock_parked p on p.line_id = l.id and p.seq = t.seq
             where l.subscription_id = :subscription and l.key = cast(coalesce(t.key, '') as text) and l.alone = 0)
   and not exists (select 1 from penstock_lines l
             where l.subscription_id = :subscription and l.key = '' and l.alone = t.seq)
   and not exists (select 1 from penstock_dead_letters d
             where d.subscription_id = :subscription and d.seq = t.seq)
