-- The last messages of the parts of a key before its head, which gaps end, see {release} of inboxes.
do $$
declare
    heads regclass;
begin
    for heads in select c.oid::regclass from pg_class c where c.relnamespace = quote_ident(current_schema())::regnamespace and c.relname ~ '^__inbox\.[0-9]+\.heads\.[0-3]$' and c.relkind = 'r' loop
        execute format('alter table %s add column behind text[] collate "C"', heads);
    end loop;
end $$;
