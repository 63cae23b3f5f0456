-- A right to a queue is a right to a function, as PostgreSQL checks it (docs/decisions/0011). What a role may be
-- granted and is not made for each queue has a door there: a function of the queue's own, which runs as the
-- schema's owner and calls what takes a queue, which nobody else may.
create or replace function _door_functions() returns text
language sql immutable set search_path from current as $text$ select $$

create or replace function {settle}(what text, leases bigint[], by interval default null, error text default null) returns table (lease bigint, until timestamptz)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $fn$
begin
    if what = 'maintain' then
        perform {schema}._maintain({id}, true);
    else
        return query select * from {schema}._settle({id}, what, leases, by, error);
    end if;
end $fn$;

create or replace function {operate}(what text, ids bigint[] default null, after text default null) returns jsonb
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $fn$
begin
    return {schema}._operate({id}, what, ids, after);
end $fn$;

$$ $text$;
