-- One statement at a time, each of which may run again: on some engines DDL commits by itself.
--
-- Each lookup that is done again and again has one index that it could use. Where all rows are deleted and not cleaned up, because a
-- snapshot is open, statistics say that a table is empty. A planner takes any index with a column of the lookup for as good, and walks
-- over all of it. So "queue_id - $1 = 0", which is in no index, is in the lookups that have an index on another column. Indexes of entries
-- have an expression that only their lookups have. Nor may a join be turned round and read the whole table. The first column of its index
-- is "= any (array[d.x])" then, by which nothing can be hashed or merged, only looked up.
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

-- keeps_settled: settled messages are noted in entries rather than deleted, because another subscription reads them or they are
-- retained. low: before it nothing is unsettled but what committed late. An old one costs time, never a message.
create table if not exists {schema}.subscriptions (
  id bigint generated always as identity primary key,
  outbox_id bigint not null,
  name text not null,
  keeps_settled boolean not null,
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

-- Subscriptions over tables that other applications made. Their rows in subscriptions have the negative number as their
-- outbox. mark: the column that tells delivered rows apart, empty if they are taken away.
create table if not exists {schema}.adopted (
  id bigint generated always as identity primary key,
  subscription text not null unique,
  source text not null,
  mark text not null
);

-- Who shares a subscription, with the buckets that each has.
create table if not exists {schema}.members (
  subscription_id bigint not null,
  epoch bigint not null,
  holder text not null,
  buckets smallint[] not null,
  lease_until timestamptz not null,
  primary key (subscription_id, epoch)
);

-- Each Settle leaves a row, by which it is known to have happened if it is made again. Maintain adds up the old ones.
create table if not exists {schema}.progress (
  subscription_id bigint not null,
  epoch bigint not null,
  attempt bigint not null,
  at timestamptz not null default clock_timestamp(),
  settled bigint not null,
  primary key (subscription_id, epoch, attempt)
);

-- Each write of the store itself, a publish or an enqueue, leaves a row, which shows that it has happened if its answer was lost. Its messages or
-- jobs may be gone by then. With given_up, it will not happen. numbers are those of the jobs. A later attempt takes the row away. A negative one
-- is a lease that ended because its time was over or its job was cancelled, not by its holder. It goes a day later.
create table if not exists {schema}.attempts (
  attempt bigint primary key,
  given_up boolean not null default false,
  at timestamptz not null default clock_timestamp(),
  numbers bigint[]
);

-- The state of a message in a subscription; one without an entry is new. state: 0 settled, 1 parked, 2 dead letter, 3 to be delivered again.
-- parked_key: the key of a message that is parked in order. head: nothing of its parked key is before it; due counts for heads, and is the time at
-- which delivery again was requested. hold: the key that waits for this dead letter, also while it is sent again.
create table if not exists {schema}.entries (
  subscription_id bigint not null,
  seq bigint not null,
  bucket smallint not null,
  ts timestamptz not null,
  row_id text, -- of an adopted table
  state smallint not null,
  key text not null default '',
  parked_key text,
  hold text,
  head boolean not null default false,
  due timestamptz,
  attempts integer not null default 0,
  since timestamptz,
  failures jsonb,
  died_at timestamptz,
  primary key (subscription_id, seq)
);

create index if not exists entries_by_state on {schema}.entries ((subscription_id * 4 + state), ts);

create index if not exists entries_by_parked_key on {schema}.entries ((subscription_id - 0), parked_key, ts, seq) where parked_key is not null;

create index if not exists entries_by_due on {schema}.entries ((subscription_id - 0), due, seq) where head;

create index if not exists entries_row on {schema}.entries (subscription_id, row_id) where row_id <> '';

create index if not exists entries_by_replay on {schema}.entries ((subscription_id - 0), due) where state = 3;

create index if not exists entries_by_hold on {schema}.entries ((subscription_id - 0), hold) where hold is not null;

create table if not exists {schema}.queues (
  id bigint generated always as identity primary key,
  name text not null unique,
  lifo boolean not null,
  paused boolean not null default false,
  max_attempts integer not null default 25,
  max_running integer not null default 0,
  dedup_window bigint not null default 3600000000000, -- nanoseconds
  policies smallint not null default 0, -- which the queue has: 1 is of groups, 2 is its rate
  expired bigint not null default 0 -- jobs that ended because their deadline had passed
);

create sequence if not exists {schema}.job_ids;

-- Numbers of jobs, job_ids, are one sequence for all queues.

-- Jobs that were claimed. With group_key, priority and ts the row of a job is found without an index by its id.
create table if not exists {schema}.leases (
  lease bigint generated by default as identity primary key, -- by chance: it does not come again after a promotion either, so a late Ack cannot mean another claim
  queue_id bigint not null,
  seq bigint not null,
  group_key text not null,
  priority smallint not null,
  ts timestamptz not null,
  key text not null,
  attempt integer not null,
  until timestamptz not null,
  worker text not null,
  claim bigint not null default 0, -- by which leases are given back if the answer to their claim was lost
  begun timestamptz not null default clock_timestamp(),
  unique (seq)
);

create index if not exists leases_until on {schema}.leases (queue_id asc, until asc);

-- Jobs of a key run one at a time: of claims that run side by side one is refused by this.
create unique index if not exists leases_by_key on {schema}.leases (key, queue_id) where key <> '';

-- Jobs that have begun and are to run again, from due on; those that run have their row still.
create table if not exists {schema}.tries (
  queue_id bigint not null,
  seq bigint not null,
  group_key text{collate} not null,
  priority smallint not null,
  ts timestamptz not null,
  key text not null,
  due timestamptz not null,
  attempts integer not null,
  since timestamptz,
  failures jsonb,
  primary key (seq)
);

create index if not exists tries_due on {schema}.tries (queue_id asc, group_key asc, due asc);

create index if not exists tries_key on {schema}.tries (key) where key <> '';

create table if not exists {schema}.dead_jobs (
  queue_id bigint not null,
  seq bigint not null,
  group_key text{collate} not null,
  priority smallint not null,
  created_at timestamptz not null,
  key text,
  headers jsonb,
  payload bytea not null,
  attempts integer not null,
  since timestamptz,
  failures jsonb,
  died_at timestamptz not null,
  primary key (queue_id, seq)
);

-- Which job came first with a dedup key.
create table if not exists {schema}.dedup (
  queue_id bigint not null,
  dedup_key text not null,
  seq bigint not null,
  at timestamptz not null,
  primary key (queue_id, dedup_key)
);

create index if not exists dedup_over on {schema}.dedup (at asc);

create table if not exists {schema}.schedules (
  queue_id bigint not null,
  name text{collate} not null,
  cron text not null,
  next timestamptz not null,
  job jsonb not null, -- a penstock.NewJob
  paused boolean not null default false,
  skip_overlap boolean not null default false,
  last_job bigint not null default 0, -- 0: it has made none
  primary key (queue_id, name)
);

-- The policies of groups, that of all groups that have no other, '*', and the rate of a queue as a whole. policy is a penstock.GroupPolicy, empty of a group that is only
-- held. By its rate jobs start a pace apart; one may come early by slack, less one pace, and none waits longer than per. These are nanoseconds, and held_until is microseconds.
create table if not exists {schema}.group_policies (
  queue_id bigint not null,
  whole boolean not null,
  group_key text{collate} not null,
  policy text not null,
  max_running integer not null,
  weight integer not null,
  pace bigint not null,
  slack bigint not null,
  per bigint not null,
  held_until bigint not null,
  reason text not null,
  primary key (queue_id, group_key, whole)
);

-- When the next job of a group, or of a queue as a whole, may start by its rate, in nanoseconds. The row with the highest number counts: each start inserts one, and
-- deletes the one before.
create table if not exists {schema}.group_starts (
  queue_id bigint not null,
  whole boolean not null,
  group_key text not null,
  n bigint not null,
  next bigint not null,
  primary key (queue_id, group_key, whole, n)
);

create table if not exists {schema}.inboxes (
  id bigint generated always as identity primary key,
  consumer text not null unique,
  keep bigint not null -- microseconds
);

create table if not exists {schema}.received (
  inbox_id bigint not null,
  id text not null,
  at timestamptz not null,
  primary key (inbox_id, id)
);

create index if not exists received_at on {schema}.received (inbox_id asc, at asc);

-- A consumer that has received a message of a key locks a row of these, so that messages of a key take turns. Those with the negative number of a
-- queue are for its claims: each locks one of them, by chance, and who excludes all claims locks them all. Those from 64 on stand for unique keys.
create table if not exists {schema}.turns (
  inbox_id bigint not null,
  turn smallint not null,
  primary key (inbox_id, turn)
);

-- Ids that were expected and did not come in time, and ids that were discarded. next was handed over in its
-- place.
create table if not exists {schema}.gaps (
  inbox_id bigint not null,
  id text not null,
  key text not null,
  next text,
  discarded boolean not null,
  at timestamptz not null,
  primary key (inbox_id, id)
);

create index if not exists gaps_at on {schema}.gaps (inbox_id asc, at asc);

-- Messages that came before the one they follow; gone once they are released.
create table if not exists {schema}.held (
  inbox_id bigint not null,
  id text not null,
  previous text not null,
  key text not null,
  at timestamptz not null,
  due timestamptz not null,
  headers jsonb,
  payload bytea not null,
  primary key (inbox_id, id)
);

create index if not exists held_previous on {schema}.held (inbox_id, previous);

create index if not exists held_due on {schema}.held (inbox_id asc, due asc);

-- The message of a key that was handed over last and not late. behind are, as JSON, the last ones of the parts of the key
-- before it, which gaps end.
create table if not exists {schema}.key_heads (
  inbox_id bigint not null,
  key text not null,
  id text not null,
  behind text,
  at timestamptz not null,
  primary key (inbox_id, key)
);

create index if not exists key_heads_at on {schema}.key_heads (inbox_id asc, at asc);

insert into {schema}.turns (inbox_id, turn) select - q.id, n from {schema}.queues q cross join generate_series(0, 63) n where {side_by_side} on conflict do nothing;

insert into {schema}.version (version) select {version} where not exists (select from {schema}.version where version = {version});
