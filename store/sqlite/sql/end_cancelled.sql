-- The dead letter of each is there already.
delete from {jobs}
 where seq in (select d.seq from penstock_barriers b
                cross join penstock_waits w on w.barrier = b.barrier and w.on_dead = 'cancel'
                cross join penstock_dead_jobs d on d.queue_id = b.queue_id and d.seq = w.seq
                where b.queue_id = {queue} and b.dead > 0)
