delete from {table} t
 using {rows}
 where {same_d}
   and exists (select from {schema}.subscriptions where id = {sub} and not keeps_settled)
