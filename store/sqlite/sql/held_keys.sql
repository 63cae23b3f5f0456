-- The parked keys that are held by messages. ?2 is a JSON array of their seqs.
select distinct k.id
  from json_each(?2) j
  join penstock_holds h on h.subscription_id = ?1 and h.seq = j.value
  join penstock_parked_keys k on k.subscription_id = h.subscription_id and k.key = h.key and k.seq = 0
