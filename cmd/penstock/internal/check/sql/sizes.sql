-- Table $1 and its partitions in bytes: the rows, the indexes, everything.
select coalesce(sum(pg_relation_size(m.relid)), 0)::bigint,
       coalesce(sum(pg_indexes_size(m.relid)), 0)::bigint,
       coalesce(sum(pg_total_relation_size(m.relid)), 0)::bigint
  from (select $1::oid as relid
         union
        select relid from pg_partition_tree($1::oid::regclass)) m
