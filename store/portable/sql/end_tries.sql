with l as materialized (
  select seq from {schema}.leases where queue_id - {queue} = 0 and {lease in leases}
)
delete from {schema}.tries a
 using l
 where a.seq = any (array[l.seq])
