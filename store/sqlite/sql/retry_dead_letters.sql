-- Dead letters that are sent back: each is a line of its own and due at once.
-- ?3 is a JSON array of seqs.
insert into penstock_lines (subscription_id, key, alone, head, due)
select ?1, '', j.value, j.value, ?2
  from json_each(?3) j
 where true
    on conflict (subscription_id, key, alone) do update set due = ?2
