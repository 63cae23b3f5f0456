-- ?4 is a JSON array of [seq, attempt]; leases get their numbers in its order. They begin
-- at ?5, the time, because the numbers of the file come again in a restored copy.
insert into penstock_leases (lease, queue_id, seq, attempt, until, worker)
select max(?5, (select coalesce(max(seq), 0) + 1 from sqlite_sequence where name = 'penstock_leases')) + j.key,
       ?1, json_extract(j.value, '$[0]'), json_extract(j.value, '$[1]'), ?2, ?3
  from json_each(?4) j
 order by j.key
