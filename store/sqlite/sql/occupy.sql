-- The keys of jobs that were claimed, [seq, key, id] of each; of one that is tried again it is busy already.
insert into penstock_busy (queue_id, key, seq)
select {queue}, json_extract(j.value, '$[1]'), json_extract(j.value, '$[0]')
  from json_each({keys}) j
 where true
    on conflict (queue_id, key) do nothing
