select lease
  from {schema}.leases
 where queue_id = $1 and lease = any ($2::bigint[])
 order by lease
   for update
