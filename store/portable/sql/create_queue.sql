-- Producers give payload and, if they like, group_key, priority, not_before, key and headers. ts is the place
-- of a job in its queue. A job ends when its row is deleted.
create table if not exists {jobs} (
  group_key text{collate} not null default '' check (octet_length(group_key) <= 256),
  priority smallint not null default 0 check (priority between -16 and 15),
  ts timestamptz not null generated always as (greatest(created_at, not_before)) stored,
  seq bigint not null default nextval({ids}),
  created_at timestamptz not null default clock_timestamp(),
  not_before timestamptz,
  key text check (octet_length(key) <= 1024),
  headers jsonb check (jsonb_typeof(headers) = 'object'),
  payload bytea not null check (octet_length(payload) <= 67108864),
  {queue_key}
)
