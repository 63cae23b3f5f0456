-- It is due, and keeps its place.
update {jobs} t force index (primary)
   set t.payload = {payload}, t.headers = {headers},
       t.not_before = case when t.ts > utc_timestamp(6) then greatest(utc_timestamp(6), t.created_at) else t.not_before end,
       t.ts = case when t.ts > utc_timestamp(6) then greatest(utc_timestamp(6), t.created_at) else t.ts end
 where t.seq = {job}
