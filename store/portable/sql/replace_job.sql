-- It is due, and keeps its place but for a microsecond: a claim that has looked at the row before does not find it any more.
update {jobs} t
   set payload = {payload}, headers = {headers}, not_before = case when t.ts > clock_timestamp() then greatest(clock_timestamp(), t.created_at) else t.ts + interval '1 microsecond' end
 where t.key = {key} and t.key <> '' and t.seq = {job}
