select exists (select from {lease}),
       exists (select from {schema}.entries e where e.subscription_id - 0 = $1 and e.head and e.due > $4 and e.due <= (select clock_timestamp()) and e.bucket = any ($3::smallint[])),
       exists (select from {schema}.entries e where e.subscription_id - 0 = $1 and e.state = 3 and e.due > $4 and e.bucket = any ($3::smallint[])),
       clock_timestamp()
  from {schema}.subscriptions
 where id = $1 and {by_index}
