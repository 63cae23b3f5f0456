cross join lateral (
    select count(*) as backlog, min({oldest}) as oldest
      from {table} t
     where not exists (select from {schema}.entries e where e.subscription_id = s.id and {entry})) b
