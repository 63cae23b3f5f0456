-- Dead letters for which their key waits. ?2 is a JSON array of seqs.
insert into penstock_holds (subscription_id, seq, key)
select d.subscription_id, d.seq, cast(d.key as text)
  from json_each(?2) j
  join penstock_dead_letters d on d.subscription_id = ?1 and d.seq = j.value
 where cast(coalesce(d.key, '') as text) <> ''
    on conflict do nothing
