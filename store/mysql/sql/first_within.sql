-- first_of in RocksDB, which stops at the end of a range, but walks over all deleted rows of a priority: these ranges begin behind those.
(select t.priority
   from {jobs} t force index (claims)
  where t.group_key = {group} and ({within})
  order by t.place, t.ts, t.seq
  limit 1)
