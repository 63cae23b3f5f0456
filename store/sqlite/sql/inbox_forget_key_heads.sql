delete from {schema}.key_heads
 where inbox_id = {inbox}
   and key in (select key from {schema}.key_heads where inbox_id = {inbox} and at < {clock} - (select keep from {schema}.inboxes where id = {inbox}) order by at limit {most})
returning at
