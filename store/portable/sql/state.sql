select exists (select from {lease}),
       exists (select from {schema}.entries e where e.subscription_id - 0 = {sub} and e.head and e.due > {since} and e.due <= (select clock_timestamp()) and e.bucket = any ({reads}::smallint[])),
       exists (select from {schema}.entries e where e.subscription_id - 0 = {sub} and e.state = 3 and e.due > {since} and e.bucket = any ({reads}::smallint[])),
       clock_timestamp()
  from {schema}.subscriptions
 where id = {sub} and {by_index}
