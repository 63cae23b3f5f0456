-- The first job of each key of a list, unless a lease or a retry holds the key, and whether it may be taken. A key without jobs has the number 0.
-- The keys are Base64: they are any bytes, which JSON does not take. Without the limit MariaDB looks for each first job three times.
select from_base64(h.k), coalesce(t.seq, 0), coalesce(t.priority, 0), coalesce(t.ts, utc_timestamp(6)), coalesce(t.group_key = {group} and t.ts <= utc_timestamp(6), false)
  from (select d.k, (select b.seq from {jobs} b force index (of_key) where b.`key` = from_base64(d.k) order by b.`key`, b.ts, b.seq limit 1) as seq
          from json_table('[{keys}]', '$[*]' columns (k varchar(1400) path '$')) d
         where not exists (select 1 from {schema}.leases b force index (leases_key) where b.queue_id = {queue} and b.`key` = from_base64(d.k))
           and not exists (select 1 from {schema}.tries b force index (tries_key) where b.queue_id = {queue} and b.`key` = from_base64(d.k))
         limit 1000000000) h
  left join {jobs} t force index (primary) on t.seq = h.seq
