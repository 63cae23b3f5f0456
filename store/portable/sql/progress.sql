insert into {schema}.progress (subscription_id, epoch, attempt, settled)
select {sub}, {epoch}, {attempt}, {settled}
 where exists (select from {lease})
   and not exists (select from {schema}.progress p where p.subscription_id = {sub} and p.epoch = {epoch} and p.attempt = {attempt})
