delete from {schema}.progress p
 using unnest({epochs}::bigint[], {attempts}::bigint[]) d(epoch, attempt)
 where p.subscription_id = {sub} and p.epoch = d.epoch and p.attempt = d.attempt
