-- The queues of these :names, an array, or all, counted up to :most of each kind of rows; -1: all. Of the keyed jobs the first of each key that is not busy is ready,
-- the others wait. A job whose lease has ended is also ready: the next claim finds it.
select q.id, q.name, q.lifo, q.paused, q.max_attempts, q.max_running, q.dedup_window,
       (select count(*) from (select 1 from penstock_ready r where r.queue_id = q.id limit :most))
         + (select count(*) from (select 1 from penstock_leases l where l.queue_id = q.id and l.until <= :now limit :most)),
       (select coalesce(min(abs(r.rank)), 0) from (select r.rank from penstock_ready r where r.queue_id = q.id limit :most) r),
       (select count(*) from (select 1 from penstock_leases l where l.queue_id = q.id and l.until > :now limit :most)),
       (select count(*) from (select 1 from penstock_scheduled d where d.queue_id = q.id limit :most)),
       (select count(*) from (select 1 from penstock_keyed k where k.queue_id = q.id limit :most))
         - (select count(*) from (select distinct k.key from (select k.key from penstock_keyed k where k.queue_id = q.id limit :most) k) f
             where not exists (select 1 from penstock_busy b where b.queue_id = q.id and b.key = f.key)),
       (select count(*) from (select 1 from penstock_dead_jobs d where d.queue_id = q.id limit :most)),
       (select count(*) from (select 1 from penstock_keyed k where k.queue_id = q.id limit :most)) = :most
  from penstock_queues q
 where :names is null or q.name in (select value from json_each(:names))
 order by q.name
