-- Functions that other engines lack are made to fail here: they stand before pg_catalog in the search path and say what
-- YugabyteDB says.
create schema if not exists shim;

create or replace function shim.no_such(what text) returns bigint language plpgsql as $$
begin
  raise exception '% is not yet supported', what using errcode = '0A000', hint = 'See https://github.com/yugabyte/yugabyte-db/issues for tracking';
end $$;

create or replace function shim.txid_current() returns bigint language sql as $$ select shim.no_such('txid_current') $$;
create or replace function shim.txid_current_if_assigned() returns bigint language sql as $$ select shim.no_such('txid_current_if_assigned') $$;
create or replace function shim.txid_current_snapshot() returns bigint language sql as $$ select shim.no_such('txid_current_snapshot') $$;
create or replace function shim.txid_status(bigint) returns bigint language sql as $$ select shim.no_such('txid_status') $$;
create or replace function shim.pg_current_xact_id() returns bigint language sql as $$ select shim.no_such('pg_current_xact_id') $$;
create or replace function shim.pg_current_xact_id_if_assigned() returns bigint language sql as $$ select shim.no_such('pg_current_xact_id_if_assigned') $$;
create or replace function shim.pg_current_snapshot() returns bigint language sql as $$ select shim.no_such('pg_current_snapshot') $$;
create or replace function shim.pg_xact_status(xid8) returns bigint language sql as $$ select shim.no_such('pg_xact_status') $$;
create or replace function shim.pg_notify(text, text) returns void language sql as $$ $$;

do $$
declare name text; args text;
begin
  foreach name in array array['pg_advisory_lock', 'pg_advisory_lock_shared', 'pg_advisory_unlock', 'pg_advisory_unlock_shared', 'pg_advisory_xact_lock',
      'pg_advisory_xact_lock_shared', 'pg_try_advisory_lock', 'pg_try_advisory_lock_shared', 'pg_try_advisory_xact_lock', 'pg_try_advisory_xact_lock_shared'] loop
    foreach args in array array['bigint', 'integer, integer'] loop
      execute format('create or replace function shim.%I(%s) returns bigint language sql as $f$ select shim.no_such(''advisory locks'') $f$', name, args);
    end loop;
  end loop;
end $$;

-- Every sequence hands out its numbers in blocks of 100, one to each session, so that a later one may be lower.
create or replace function shim.blocks() returns event_trigger language plpgsql as $$
declare s record;
begin
  for s in select oid::regclass as name from pg_class c join pg_sequence q on q.seqrelid = c.oid where c.relkind = 'S' and q.seqcache = 1 loop
    execute format('alter sequence %s cache 100', s.name);
  end loop;
end $$;

drop event trigger if exists blocks;
create event trigger blocks on ddl_command_end when tag in ('CREATE TABLE', 'CREATE SEQUENCE') execute function shim.blocks();
