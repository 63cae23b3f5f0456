-- A row of some priorities. Each is a lookup of the rows with the priority, which does not walk on over others that were deleted.
(select t.priority
   from {these_places}
   straight_join {jobs} t force index (claims) on t.group_key = {group} and t.place = d.seq
  limit 1)
