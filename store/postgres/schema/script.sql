-- Penstock's schema {title}: {what}, as penstock migrate makes it.
--
-- One statement, which is done whole or not at all and leaves no setting behind. It needs PostgreSQL 14 or newer
-- and a role that owns the schema, or may create it. psql -f, Flyway, goose and Alembic's op.execute run it as it is,
-- and so does Liquibase, as a sqlFile with splitStatements="false".
--
-- +goose Up
-- +goose StatementBegin
do {outer}
declare
    settings constant text[] := '{search_path, check_function_bodies, standard_conforming_strings, client_min_messages}';
    before   constant text[] := array(select current_setting(s) from unnest(settings) with ordinality u(s, i) order by i);
    version  bigint := 0;
begin
    if current_setting('server_version_num')::int < {oldest_server} then
        raise exception 'the server is PostgreSQL %', current_setting('server_version') using hint = 'Penstock needs PostgreSQL 14 or newer';
    end if;
    perform pg_advisory_xact_lock({lock}, hashtext({schema_name}));
    if not exists (select from pg_namespace where nspname = {schema_name}) then
        create schema {schema};
    end if;
    if to_regclass({migration_name}) is not null then
        execute 'select coalesce(max(version_id), 0) from {migration}' into version;
    end if;
    if version <> {from} then
        raise exception 'the schema % is version %, this leads on from version {from}', quote_ident({schema_name}), version
        using hint = 'print the steps from there: penstock migrate --sql --from ' || version;
    end if;
    -- Functions keep the search_path with which they are made. Their bodies are not checked before all are there.
    set local search_path = {schema}, pg_temp;
    set local check_function_bodies = off;
    set local standard_conforming_strings = on;
    set local client_min_messages = warning; -- no notices of functions that are dropped if they exist
{changes}
    perform set_config(settings[i], before[i], true) from generate_subscripts(settings, 1) i;
end {outer};
-- +goose StatementEnd
