-- Another subscription that would take or mark the same rows.
--   $1 name, $2 table, $3 mark
select name, mark from {schema}._adopt_subscription
 where source = $2 and name <> $1 and (mark = $3 or mark = '' or $3 = '')
 order by id limit 1
