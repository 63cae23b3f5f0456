-- A number may come again where the last that was committed was lost: messages in flight are also known by their time.
(select t.seq, t.ts{more_t}
   from {by_place}
  where t.bucket = {bucket} and {beyond}
    and (select e.seq from {schema}.entries e force index ({entries}) where e.subscription_id = {sub} and {entry}) is null
    and {landed}
  order by {order_t}
  limit {per})
