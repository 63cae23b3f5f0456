-- It has begun before, or was put off: now it begins anew, and perhaps later.
update {schema}.tries a
   set ts = t.ts, due = greatest({due}::timestamptz, clock_timestamp()), attempts = 0, since = null, failures = null
  from {jobs} t
 where t.key = {key} and t.key <> '' and t.seq = {job} and a.seq = any (array[t.seq])
