-- Producers give key, topic, headers and payload, and an id if they have one. The
-- bucket follows from the key, so that one key is in one bucket.
create table if not exists {table} (
  bucket smallint not null generated always as ((case when coalesce(key, '') = '' then seq % {buckets}
    else {key_bucket} % {buckets} end)::smallint) stored,
  ts timestamptz not null default clock_timestamp(),
  seq bigint not null {seq},
  id text,
  key text,
  topic text not null default '',
  headers jsonb,
  payload bytea not null,
  {outbox_key}
){split}
