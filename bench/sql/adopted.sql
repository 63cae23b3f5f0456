-- What Penstock remembers of a subscription over a table.

-- name: forget
with s as (delete from {schema}._adopt_subscription where name = {name} returning id),
     l as (delete from {schema}._adopt_log where subscription in (select id from s))
delete from {schema}._adopt_row where subscription in (select id from s);
