select epoch = {epoch} and holder = {holder},
       exists (select 1 from {schema}.entries e force index (entries_due) where e.subscription_id = {sub} and e.head = 1 and e.due > {since} and e.due <= utc_timestamp(6)),
       exists (select 1 from {schema}.entries e force index (entries_replay) where e.subscription_id = {sub} and e.state = 3 and e.due > {since}),
       utc_timestamp(6)
  from {schema}.subscriptions
 where id = {sub}
