-- The average bytes of a row of table $1.$2 by its statistics, null without any
-- that the role may read.
select sum(avg_width)::float8
  from pg_catalog.pg_stats
 where schemaname = $1 and tablename = $2
