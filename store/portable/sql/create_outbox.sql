-- Producers give key, topic, headers and payload, and an id if they have one. The
-- bucket follows from the key, so that one key is in one bucket.
create table if not exists {table} (
  bucket smallint not null generated always as ((case when coalesce(key, '') = '' then seq % {buckets}
    else {key_bucket} % {buckets} end)::smallint) stored,
  ts timestamptz not null default clock_timestamp(),
  seq bigint not null {seq},
  id text check (octet_length(id) <= 256),
  key text check (octet_length(key) <= 1024),
  topic text not null default '' check (octet_length(topic) <= 1024),
  headers jsonb check (jsonb_typeof(headers) = 'object'),
  payload bytea not null check (octet_length(payload) <= 67108864),
  {outbox_key}
){split}
