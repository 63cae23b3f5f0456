-- The prepared transactions of this database.
select p.gid,
       p.owner::text,
       extract(epoch from clock_timestamp() - p.prepared)::float8,
       age(p.transaction)::bigint
  from pg_catalog.pg_prepared_xacts p
 where p.database = current_database()
 order by 4 desc
 limit 100
