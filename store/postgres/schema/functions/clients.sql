-- Functions for clients in other languages.

create or replace function check_client(written_for bigint) returns bigint
language plpgsql immutable as $$ declare
    oldest  constant bigint := 300; -- that a client may be written for; a change that breaks older ones raises it
    version constant bigint := {schema version};
begin
    if written_for > version then
        raise exception 'the schema is version %, this client needs %', version, written_for
        using errcode = 'PS002', hint = 'run: penstock migrate';
    elsif (written_for >= oldest) is not true then
        raise exception 'this client was written for version % of the schema, which is version % and takes clients for % on', coalesce(written_for::text, 'null'), version, oldest
        using errcode = 'PS002', hint = 'use a newer client';
    end if;
    return version;
end $$;

comment on function check_client is 'Checks whether a client that was written for a version of the schema fits this one, and returns the version of the schema: the number of its newest numbered file. Error: PS002 if it does not fit.';
