delete from {table} t
 using {rows}
 where {same_d}
   and exists (select from {lease})
   and exists (select from {schema}.subscriptions m where m.id = {sub} and not m.keeps_settled)
   and exists (select from {schema}.progress p where p.subscription_id = {sub} and p.epoch = {epoch} and p.attempt = {attempt})
