with l as materialized (
  select seq from {schema}.leases where queue_id - $1 = 0 and lease = any ($2::bigint[])
)
delete from {schema}.tries a
 using l
 where a.seq = l.seq
