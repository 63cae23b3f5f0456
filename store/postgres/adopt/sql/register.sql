-- Creates a subscription, or points it to another table.
--   $1 name, $2 table, $3 mark
insert into {schema}._adopt_subscription (name, source, mark) values ($1, $2, $3)
on conflict (name) do update set source = excluded.source, mark = excluded.mark
returning id
