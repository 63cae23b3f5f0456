-- A number may come again where the last that was committed was lost: what is in flight is known by its time, too.
(select t.seq, t.ts{more_t}
   from {by_place}
  where t.bucket = {bucket} and {beyond}
    and (select e.seq from {schema}.entries e force index ({entries}) where e.subscription_id = {sub} and {entry}) is null
    and {landed}
  order by {order_t}
  limit {per})
