-- Replication slots. A slot's xmin holds back vacuum in every database, its
-- catalog_xmin only in the catalogue; its restart_lsn retains WAL.
select s.slot_name::text,
       s.slot_type,
       s.active,
       age(s.xmin)::bigint,
       age(s.catalog_xmin)::bigint,
       case when pg_is_in_recovery() then null
            else pg_wal_lsn_diff(pg_current_wal_lsn(), s.restart_lsn) end::float8
  from pg_catalog.pg_replication_slots s
 where not s.temporary
 order by s.slot_name
 limit 100
