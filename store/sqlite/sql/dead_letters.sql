select d.history, d.at,
       exists (select 1 from penstock_holds h where h.subscription_id = d.subscription_id and h.seq = d.seq),
       d.seq, d.created_at, coalesce(d.id, ''), coalesce(d.key, ''), d.topic, coalesce(d.headers, ''), d.payload
  from penstock_dead_letters d
 where d.subscription_id = :subscription and d.seq in ({chosen})
 order by d.seq
