-- Of the leases of a key only those behind a number are looked for, see functions/keys.sql. Migrate makes the index that is missing then.

drop index if exists _lease_queue_key_idx;

do $$ declare busy regprocedure;
begin
    for busy in select p.oid from pg_proc p where p.pronamespace = quote_ident(current_schema())::regnamespace and p.proname like '\_%.busy' loop
        execute 'drop function ' || busy; -- {busy} has more arguments
    end loop;
end $$;
