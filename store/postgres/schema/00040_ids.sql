-- A derived id says when its message was written (internal/messageid): after a restore or
-- a failover that lost transactions a seq comes again with another message. Messages that were
-- written before have the ids that they had.

alter table _outbox add column plain_ids bigint not null default 0; -- up to this seq the id is UID-SEQ

do $$
begin
    update _outbox o set plain_ids = coalesce(pg_sequence_last_value(format('%I.%I', current_schema(), format('_%s.seq', o.name))::regclass), 0);
end $$;

alter table _cursor add column timeline integer; -- of the server's log, which a failover or a recovery changes; null: not known

drop function if exists _write_cursor(bigint, bigint, text, bigint, pg_snapshot, bigint, pg_snapshot, bigint, bigint, bigint, bigint, timestamptz, bigint);
