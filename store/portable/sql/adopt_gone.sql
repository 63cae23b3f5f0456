-- Entries of rows that the application has deleted, or settled.
select e.seq, coalesce(e.parked_key, e.hold, '')
  from {schema}.entries e
 where e.subscription_id = {sub} and not exists (select from {table} t where {same_e})
 order by e.seq
 limit {most}
