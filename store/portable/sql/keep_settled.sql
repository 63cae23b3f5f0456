insert into {schema}.entries (subscription_id, seq, bucket, ts, state)
select {sub}, d.seq, d.bucket, d.ts, 0
  from {rows}
 where exists (select from {lease})
   and (select 1 from {table} t where {same_d}) is not null
   and exists (select from {schema}.subscriptions m where m.id = {sub} and m.keeps_settled)
   and exists (select from {schema}.progress p where p.subscription_id = {sub} and p.epoch = {epoch} and p.attempt = {attempt})
   and (select e.seq from {schema}.entries e where e.subscription_id = {sub} and e.seq = d.seq) is null
