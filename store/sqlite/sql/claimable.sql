-- State that a claim needs: how many jobs it may take, and which policies the queue has. Is any ready in its group, and have some become due for being so?
select case when q.paused then 0
            when q.max_running = 0 then {most}
            else max(min({most}, q.max_running - (select count(*) from penstock_leases l where l.queue_id = q.id)), 0) end,
       q.policies,
       exists (select 1 from penstock_ready r where r.queue_id = q.id and r.group_key = {group}),
       exists (select 1 from penstock_leases l where l.queue_id = q.id and l.until <= {clock})
         or exists (select 1 from penstock_scheduled d where d.queue_id = q.id and d.due <= {clock})
  from penstock_queues q
 where q.id = {queue}
