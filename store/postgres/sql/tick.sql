-- The first row of poll.sql alone: a look at whether a poll can find anything.
--   $1 subscription
select coalesce(pg_sequence_last_value({seq}), 0), to_regclass({outbox_name})::oid::text,
       exists (select from {schema}._dead_letter where subscription = $1::bigint and retry),
       pg_current_snapshot()::text
