-- The first of some numbers that the queue does not have as a barrier, or that is open and to be held. One that was given and is not there any more is open.
select j.value
  from json_each({barriers}) j
 where j.value > coalesce((select given.seq from sqlite_sequence given where given.name = 'penstock_barriers'), 0)
    or exists (select 1 from penstock_barriers b where b.barrier = j.value and b.queue_id <> {queue})
    or {holding} and not exists (select 1 from penstock_barriers b where b.barrier = j.value)
 limit 1
