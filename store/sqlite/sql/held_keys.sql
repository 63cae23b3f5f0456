-- The parked keys that are held by messages. ?2 is a JSON array of their seqs.
select distinct l.id
  from json_each(?2) j
  join penstock_holds h on h.subscription_id = ?1 and h.seq = j.value
  join penstock_lines l on l.subscription_id = h.subscription_id and l.key = h.key and l.alone = 0
