-- Dead letters that are sent back: each is parked by itself and due at once.
-- ?3 is a JSON array of seqs.
insert into penstock_parked_keys (subscription_id, key, seq, head, due)
select ?1, '', j.value, j.value, ?2
  from json_each(?3) j
 where true
    on conflict (subscription_id, key, seq) do update set due = ?2
