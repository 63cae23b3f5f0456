-- Counts the messages that this attempt settles. It does not look whether they are there: that is another round trip to the workers.
insert into {schema}.progress (subscription_id, epoch, attempt, settled)
select {sub}, {epoch}, {attempt},
       (select count(*) from unnest({seqs}::bigint[]) d(seq)
         where (select e.seq from {schema}.entries e where e.subscription_id = {sub} and e.seq = d.seq) is null)
 where exists (select from {lease})
   and not exists (select from {schema}.progress p where p.subscription_id = {sub} and p.epoch = {epoch} and p.attempt = {attempt})
