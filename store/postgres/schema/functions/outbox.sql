-- Runs with search_path set to Penstock's schema and pg_temp; functions keep
-- that path (set search_path from current), so nothing a caller puts on its own
-- path is ever looked at.
--
-- Names that begin with an underscore are internal; an outbox is a table with
-- the name its users gave it.

-- _q qualifies and quotes the name of a relation of this schema. Unqualified, an
-- outbox called pg_class would be looked up in pg_catalog.
create or replace function _q(name text) returns text
language sql stable set search_path from current
return format('%I.%I', current_schema(), name);

-- _read_committed raises an error if a statement would not see rows that committed before it. Its callers take a lock
-- and then look.
create or replace function _read_committed() returns void
language plpgsql set search_path from current as $$ begin
    if current_setting('transaction_isolation') <> 'read committed' then
        raise exception 'this needs the isolation level read committed, this transaction is %', current_setting('transaction_isolation')
        using errcode = '25001', hint = 'begin it with: begin isolation level read committed';
    end if;
end $$;
