-- The defaults of table $1. To write them out the server locks the table.
select f.adnum, pg_get_expr(f.adbin, f.adrelid)
  from pg_catalog.pg_attrdef f
 where f.adrelid = $1
