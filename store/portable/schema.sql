-- One statement at a time, each of which may run again: on some engines DDL commits by itself.
create schema if not exists {schema};

create table if not exists {schema}.version (
  version integer primary key,
  applied_at timestamptz not null default now()
);

create table if not exists {schema}.outboxes (
  id bigint generated always as identity primary key,
  name text not null unique,
  uid text not null,
  buckets smallint not null,
  keep_age bigint not null default 0, -- nanoseconds
  keep_bytes bigint not null default 0
);

-- marks: what is settled is noted in entries rather than deleted, because another subscription reads it or it is retained.
-- low: before it nothing is unsettled but what committed late. An old one costs time, never a message.
create table if not exists {schema}.subscriptions (
  id bigint generated always as identity primary key,
  outbox_id bigint not null,
  name text not null,
  marks boolean not null,
  low timestamptz not null default '1970-01-01 00:00:00+00',
  epoch bigint not null default 0,
  holder text not null default '',
  holder_since timestamptz,
  lease_until timestamptz not null default '1970-01-01 00:00:00+00',
  settled bigint not null default 0,
  sink_epoch bigint not null default 0,
  sink_down timestamptz,
  sink_error text not null default '',
  unique (outbox_id, name)
);

-- Each Settle leaves a row, by which it is known to have happened; with settled -1, that it was given up and
-- will not happen. Maintain adds up the old ones.
create table if not exists {schema}.progress (
  subscription_id bigint not null,
  epoch bigint not null,
  attempt bigint not null,
  at timestamptz not null default clock_timestamp(),
  settled bigint not null,
  primary key (subscription_id, epoch, attempt)
);

-- What is known of a message in a subscription; one without an entry is new.
-- state: 0 settled, 1 parked, 2 dead letter, 3 to be delivered again.
-- line: the key, of what is parked in order. head: nothing of its line is before it; due counts for heads.
-- hold: the key that waits for this dead letter, also while it is sent again.
create table if not exists {schema}.entries (
  subscription_id bigint not null,
  seq bigint not null,
  bucket smallint not null,
  ts timestamptz not null,
  state smallint not null,
  key text not null default '',
  line text,
  hold text,
  head boolean not null default false,
  due timestamptz,
  attempts integer not null default 0,
  since timestamptz,
  failures jsonb,
  died_at timestamptz,
  primary key (subscription_id, seq)
);

create index if not exists entries_state on {schema}.entries (subscription_id, state, ts, seq) where state > 0;

create index if not exists entries_line on {schema}.entries (subscription_id, line, ts, seq) where line is not null;

create index if not exists entries_due on {schema}.entries (subscription_id, due, seq) where head;

create index if not exists entries_hold on {schema}.entries (subscription_id, hold) where hold is not null;

insert into {schema}.version (version) select {version} where not exists (select from {schema}.version where version = {version});
