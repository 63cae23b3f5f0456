-- The first row of poll.sql alone: a look at whether a poll can find anything.
--   $1 subscription
select coalesce(pg_sequence_last_value({seq}), 0), to_regclass({outbox_name})::oid::text,
       concat(case when exists (select from {schema}._dead_letter where subscription = $1::bigint and retry) then 'd' end,
              case when exists (select from {schema}._replay where subscription = $1::bigint) then 'r' end),
       pg_current_snapshot()::text, pg_backend_pid()
