-- Some that are out of their window. Who else forgets them is not waited for.
select {column}, o.at
  from {table} o force index ({index})
 where o.inbox_id = {inbox} and o.at >= {from} and o.at < utc_timestamp(6) - interval (select i.keep from {schema}.inboxes i where i.id = {inbox}) microsecond
   {passing}
 order by o.at
 limit {most}
   for update skip locked
