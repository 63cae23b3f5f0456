-- Producers give payload and, if they like, group_key, priority, not_before, key and headers. ts is the place
-- of a job in its queue. A job ends when its row is deleted.
create table if not exists {jobs} (
  group_key text{collate} not null default '',
  priority smallint not null default 0 check (priority between -16 and 15),
  ts timestamptz not null generated always as (greatest(created_at, not_before)) stored,
  seq bigint not null default nextval({ids}),
  created_at timestamptz not null default clock_timestamp(),
  not_before timestamptz,
  key text,
  headers jsonb,
  payload bytea not null,
  {queue_key}
)
