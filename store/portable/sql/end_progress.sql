delete from {schema}.progress p
 using (select {sub}::bigint as sub, unnest({epochs}::bigint[]) as epoch, unnest({attempts}::bigint[]) as attempt) d
 where p.subscription_id = any (array[d.sub]) and p.epoch = d.epoch and p.attempt = d.attempt
