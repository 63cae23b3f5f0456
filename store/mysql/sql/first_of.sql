-- The first row of some priorities, in one direction of the index.
(select {probe}, t.priority
   from {jobs} t force index (claims)
  where t.group_key = {group} and t.place between {low} and {high}
  order by t.place {to}, t.ts {to}, t.seq {to}
  limit 1)
