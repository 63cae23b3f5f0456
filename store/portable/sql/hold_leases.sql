select lease
  from {schema}.leases
 where queue_id - $1 = 0 and lease = any ($2::bigint[])
 order by lease
   for update
