-- The states of parked keys are called so.
alter table _line rename to _parked_key;
alter table _line_0 rename to _parked_key_0;
alter table _line_1 rename to _parked_key_1;
alter sequence _line_slot rename to _parked_key_slot;
alter sequence _line_n rename to _parked_key_n;
do $$
declare
    index text;
begin
    for index in select relname from pg_class where relnamespace = quote_ident(current_schema())::regnamespace and relkind in ('i', 'I') and relname ~ '^_line_' loop
        execute format('alter index %I rename to %I', index, '_parked_key_' || substr(index, 7));
    end loop;
    if to_regprocedure('_reclaim_lines(bigint)') is not null then -- in a new database functions come last
        alter function _reclaim_lines(bigint) rename to _reclaim_parked_keys; -- with its rights
    end if;
end $$;
