-- Citus sends the result of the subquery to the workers, so it has a column.
delete from {table} t
 where {there}
   and exists (select 1 from {lease}
                  and exists (select 1 from {schema}.progress p where p.subscription_id = {sub} and p.epoch = {epoch} and p.attempt = {attempt}))
