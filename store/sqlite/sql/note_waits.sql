-- [barrier, on_dead, seq] of each job that waits, but for open barriers.
insert into penstock_waits (barrier, on_dead, seq, queue_id)
select b.barrier, json_extract(j.value, '$[1]'), json_extract(j.value, '$[2]'), b.queue_id
  from json_each({waiting}) j
 cross join penstock_barriers b on b.barrier = json_extract(j.value, '$[0]')
 where true
    on conflict do nothing
