-- A slow sink's messages are settled one by one: what is settled ahead of a cursor, behind
-- messages that are not, is kept with it, by seq.

alter table _cursor add column ahead int8multirange not null default '{}';

-- The same of a replay, and what of the outbox was settled ahead when it was requested.
alter table _replay add column ahead int8multirange not null default '{}', add column besides int8multirange not null default '{}';

drop function if exists _write_cursor(bigint, bigint, text, bigint, pg_snapshot, bigint, pg_snapshot, bigint, bigint, bigint, bigint, timestamptz, bigint, integer);
