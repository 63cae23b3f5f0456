-- Counts the messages that this attempt settles: those that are there. A server that was promoted without the last that
-- was committed may lack some that were read.
insert into {schema}.progress (subscription_id, epoch, attempt, settled)
select {sub}, {epoch}, {attempt},
       (select count(*)
          from {rows}
         where (select 1 from {table} t where {same_d}) is not null -- no join, which might read all
           and (select e.seq from {schema}.entries e where e.subscription_id = {sub} and e.seq = d.seq) is null)
 where exists (select from {lease})
   and not exists (select from {schema}.progress p where p.subscription_id = {sub} and p.epoch = {epoch} and p.attempt = {attempt})
