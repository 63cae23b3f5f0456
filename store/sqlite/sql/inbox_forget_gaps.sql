delete from {schema}.gaps
 where inbox_id = {inbox}
   and id in (select id from {schema}.gaps where inbox_id = {inbox} and at < {clock} - (select keep from {schema}.inboxes where id = {inbox}) order by at limit {most})
returning at
