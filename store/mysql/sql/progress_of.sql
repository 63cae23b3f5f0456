-- Counts the messages that this attempt settles: those that are there. A server that was promoted without the last that
-- was committed may lack some that were read.
insert into {schema}.progress (subscription_id, epoch, attempt, settled)
select {sub}, {epoch}, {attempt},
       (select count(*)
          from {rows} straight_join {by_id} on {same_d}
         where (select e.seq from {schema}.entries e force index (primary) where e.subscription_id = {sub} and e.seq = d.seq) is null)
  from (select 1) one
 where exists (select 1 from {schema}.subscriptions s where s.id = {sub} and s.epoch = {epoch} and s.holder = {holder})
   and not exists (select 1 from {schema}.progress p where p.subscription_id = {sub} and p.epoch = {epoch} and p.attempt = {attempt})
