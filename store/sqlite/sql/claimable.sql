-- State that a Claim needs: the queue, how many jobs it may take, whether any is ready in its
-- group, and whether some have become due for being so.
select q.id, q.lifo, q.max_attempts,
       case when q.paused then 0
            when q.max_running = 0 then :jobs
            else max(min(:jobs, q.max_running - (select count(*) from penstock_leases l where l.queue_id = q.id)), 0) end,
       exists (select 1 from penstock_ready r where r.queue_id = q.id and r.group_key = :group_key),
       exists (select 1 from penstock_leases l where l.queue_id = q.id and l.until <= :now)
         or exists (select 1 from penstock_scheduled d where d.queue_id = q.id and d.due <= :now)
  from penstock_queues q
 where q.name = :queue
