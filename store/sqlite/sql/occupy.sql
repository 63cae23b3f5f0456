-- The keys of jobs that were claimed; of one that is tried again it is busy
-- already. ?2 is a JSON array of [seq, key, id].
insert into penstock_busy (queue_id, key, seq)
select ?1, json_extract(j.value, '$[1]'), json_extract(j.value, '$[0]')
  from json_each(?2) j
 where true
    on conflict (queue_id, key) do nothing
