-- What this transaction has read so far of each table and index of the schema. Of a table: rows that were scanned; of
-- an index: its entries, and how many of them led to a row that can be seen.
select c.relname, c.relkind = 'i', pg_stat_get_xact_tuples_returned(c.oid), pg_stat_get_xact_tuples_fetched(c.oid), pg_stat_get_xact_blocks_fetched(c.oid)
  from pg_class c
 where c.relnamespace = $1::regnamespace and c.relkind in ('r', 'i')
   and (pg_stat_get_xact_blocks_fetched(c.oid) > 0 or pg_stat_get_xact_tuples_returned(c.oid) > 0)
