-- Leases of [seq, attempt] get their numbers in the order of these. They begin at the time, because the numbers of the file come again in a
-- restored copy.
insert into penstock_leases (lease, queue_id, seq, attempt, until, worker)
select max({now}, (select coalesce(max(seq), 0) + 1 from sqlite_sequence where name = 'penstock_leases')) + j.key,
       {queue}, json_extract(j.value, '$[0]'), json_extract(j.value, '$[1]'), {until}, {worker}
  from json_each({leases}) j
 order by j.key
