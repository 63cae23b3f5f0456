-- Those of these that wait for none are due.
update penstock_scheduled set due = 0
 where queue_id = {queue} and seq in (select json_extract(j.value, '$[2]') from json_each({waiting}) j)
   and not exists (select 1 from penstock_waits o cross join penstock_barriers b on b.barrier = o.barrier
                    where o.queue_id = penstock_scheduled.queue_id and o.seq = penstock_scheduled.seq
                      and not (b.sealed and b.running <= 0 and (b.dead <= 0 or o.on_dead = 'run')))
