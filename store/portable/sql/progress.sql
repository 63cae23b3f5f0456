insert into {schema}.progress (subscription_id, epoch, attempt, settled)
select $1, $2, $3, $4
 where exists (select from {lease})
   and not exists (select from {schema}.progress p where p.subscription_id = $1 and p.epoch = $2 and p.attempt = $3)
