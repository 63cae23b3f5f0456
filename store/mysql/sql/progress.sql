insert into {schema}.progress (subscription_id, epoch, attempt, settled)
select {sub}, {epoch}, {attempt}, {settled} from (select 1) one
 where exists (select 1 from {schema}.subscriptions s where s.id = {sub} and s.epoch = {epoch} and s.holder = {holder})
   and not exists (select 1 from {schema}.progress p where p.subscription_id = {sub} and p.epoch = {epoch} and p.attempt = {attempt})
