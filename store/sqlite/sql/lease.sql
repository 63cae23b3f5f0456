-- ?4 is a JSON array of [seq, attempt]; leases get their numbers in its order.
insert into penstock_leases (queue_id, seq, attempt, until, worker)
select ?1, json_extract(j.value, '$[0]'), json_extract(j.value, '$[1]'), ?2, ?3
  from json_each(?4) j
 order by j.key
