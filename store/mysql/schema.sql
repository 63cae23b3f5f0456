-- One statement at a time, each of which may run again: DDL commits by itself. Names and keys are bytes, which no collation takes for
-- each other.
create table if not exists {schema}.version (
  version int primary key,
  applied_at datetime(6) not null default (utc_timestamp(6))
) {engine};

create table if not exists {schema}.outboxes (
  id bigint not null auto_increment primary key,
  name varbinary(48) not null,
  uid varchar(16) not null,
  buckets smallint not null,
  keep_age bigint not null default 0, -- nanoseconds
  keep_bytes bigint not null default 0,
  unique key outboxes_name (name)
) {engine};

-- keeps_settled: settled messages are noted in entries rather than deleted, because another subscription reads them or they are
-- retained. low: before it nothing is unsettled but what committed late. An old one costs time, never a message.
create table if not exists {schema}.subscriptions (
  id bigint not null auto_increment primary key,
  outbox_id bigint not null,
  name varbinary(128) not null,
  keeps_settled boolean not null,
  low datetime(6) not null default '1970-01-01 00:00:00',
  epoch bigint not null default 0,
  holder varbinary(256) not null default '',
  holder_since datetime(6),
  lease_until datetime(6) not null default '1970-01-01 00:00:00',
  settled bigint not null default 0,
  sink_epoch bigint not null default 0,
  sink_down datetime(6),
  sink_error varbinary(500) not null default '',
  unique key subscriptions_name (outbox_id, name)
) {engine};

-- Subscriptions over tables that other applications made. Their rows in subscriptions have the negative number as their
-- outbox. mark: the column that tells delivered rows apart, empty if they are taken away.
create table if not exists {schema}.adopted (
  id bigint not null auto_increment primary key,
  subscription varbinary(128) not null,
  source varbinary(600) not null,
  mark varbinary(256) not null,
  unique key adopted_subscription (subscription)
) {engine};

-- Each Settle leaves a row, by which it is known to have happened if it is made again. Maintain adds up the old ones.
create table if not exists {schema}.progress (
  subscription_id bigint not null,
  epoch bigint not null,
  attempt bigint not null,
  at datetime(6) not null default (utc_timestamp(6)),
  settled bigint not null,
  primary key (subscription_id, epoch, attempt)
) {engine};

-- Each write of the store itself, a publish or an enqueue, leaves a row, which shows that it has happened if its answer was lost. Its messages or
-- jobs may be gone by then. With given_up, it will not happen. A later attempt takes the row away. A negative one is a lease that ended because
-- its time was over or its job was cancelled, not by its holder. It goes a day later.
create table if not exists {schema}.attempts (
  attempt bigint not null primary key,
  given_up boolean not null default false,
  at datetime(6) not null default (utc_timestamp(6))
) {engine};

-- The state of a message in a subscription; one without an entry is new. state: 0 settled, 1 parked, 2 dead letter, 3 to be delivered again.
-- parked_key: the key of a message that is parked in order. head: nothing of its parked key is before it; due counts for heads, and is the time at
-- which delivery again was requested. hold: the key that waits for this dead letter, also while it is sent again.
create table if not exists {schema}.entries (
  subscription_id bigint not null,
  seq bigint not null,
  ts datetime(6) not null,
  row_id varbinary(2800), -- of an adopted table: 700 characters
  state tinyint not null,
  `key` varbinary(1024) not null default '',
  parked_key varbinary(1024),
  hold varbinary(1024),
  head boolean not null default false,
  due datetime(6),
  attempts int not null default 0,
  since datetime(6),
  failures mediumblob,
  error mediumblob, -- of the last attempt
  died_at datetime(6),
  primary key (subscription_id, seq),
  key entries_state (subscription_id, state, ts, seq),
  key entries_parked_key (subscription_id, parked_key, ts, seq),
  key entries_due (subscription_id, head, due, seq),
  key entries_replay (subscription_id, state, due),
  key entries_hold (subscription_id, hold),
  key entries_row (subscription_id, row_id(700))
) {engine};

create table if not exists {schema}.queues (
  id bigint not null auto_increment primary key,
  name varbinary(48) not null,
  lifo boolean not null,
  paused boolean not null default false,
  max_attempts int not null default 25,
  max_running int not null default 0,
  dedup_window bigint not null default 3600000000000, -- nanoseconds
  policies tinyint not null default 0, -- which the queue has: 1 is of groups, 2 is its rate
  expired bigint not null default 0, -- jobs that ended because their deadline had passed
  turns bigint not null default 0, -- of claims where something is limited: on Galera two of them write this row, and one is refused
  unique key queues_name (name)
) {engine};

-- Jobs that were claimed. A lease is a number by chance, which never comes again: a late Ack cannot mean another claim.
-- second is the one in which it ends. The index on it is read by the second. RocksDB does not stop at the end of a range, and would walk on over the
-- leases of jobs that have ended. For the same reason only the primary key is unique. To find out whether another unique key is free, MyRocks walks
-- on to the next row, over all that were deleted between.
create table if not exists {schema}.leases (
  lease bigint not null,
  queue_id bigint not null,
  seq bigint not null,
  group_key varbinary(256) not null,
  `key` varbinary(1024) not null,
  attempt int not null,
  until datetime(6) not null,
  second bigint not null,
  worker varbinary(256) not null,
  primary key (queue_id, seq),
  key leases_lease (lease),
  key leases_second (queue_id, second, until),
  key leases_key (queue_id, `key`, seq)
) {engine};

-- Jobs that have begun and are to run again, from due on; those that run have their row still.
create table if not exists {schema}.tries (
  queue_id bigint not null,
  seq bigint not null,
  group_key varbinary(256) not null,
  `key` varbinary(1024) not null,
  due datetime(6) not null,
  attempts int not null,
  since datetime(6),
  failures mediumblob,
  primary key (queue_id, seq),
  key tries_due (queue_id, group_key, due),
  key tries_key (queue_id, `key`, seq)
) {engine};

-- Jobs that were given up. Their rows stay in the queue's table, with the place 127, so that their numbers are not given to others.
create table if not exists {schema}.dead_jobs (
  queue_id bigint not null,
  seq bigint not null,
  priority tinyint not null,
  `key` varbinary(1024) not null,
  attempts int not null,
  since datetime(6),
  failures mediumblob,
  error mediumblob, -- of the last attempt
  died_at datetime(6) not null,
  primary key (queue_id, seq)
) {engine};

-- Which job came first with a dedup key. seq is 0 until its enqueuer knows it.
create table if not exists {schema}.dedup (
  queue_id bigint not null,
  dedup_key varbinary(256) not null,
  seq bigint not null default 0,
  at datetime(6) not null,
  primary key (queue_id, dedup_key),
  key dedup_at (queue_id, at)
) {engine};

create table if not exists {schema}.schedules (
  queue_id bigint not null,
  name varbinary(256) not null,
  cron varbinary(1024) not null,
  next datetime(6) not null,
  job longblob not null, -- a penstock.NewJob
  paused boolean not null default false,
  skip_overlap boolean not null default false,
  last_job bigint not null default 0, -- 0: it has made none
  primary key (queue_id, name)
) {engine};

-- The policies of groups, that of all groups that have no other, '*', and the rate of a queue as a whole. policy is a penstock.GroupPolicy, empty of a group that is only
-- held. By its rate jobs start a pace apart; one may come early by slack, less one pace, and none waits longer than per. These are nanoseconds, and held_until is microseconds.
create table if not exists {schema}.group_policies (
  queue_id bigint not null,
  whole boolean not null,
  group_key varbinary(256) not null,
  policy varbinary(2048) not null,
  max_running int not null,
  weight int not null,
  pace bigint not null,
  slack bigint not null,
  per bigint not null,
  held_until bigint not null,
  reason varbinary(1024) not null,
  primary key (queue_id, group_key, whole)
) {engine};

-- When the next job of a group, or of a queue as a whole, may start by its rate, in nanoseconds.
create table if not exists {schema}.group_starts (
  queue_id bigint not null,
  whole boolean not null,
  group_key varbinary(256) not null,
  next bigint not null,
  primary key (queue_id, group_key, whole)
) {engine};

create table if not exists {schema}.inboxes (
  id bigint not null auto_increment primary key,
  consumer varbinary(48) not null,
  keep bigint not null, -- microseconds
  unique key inboxes_consumer (consumer)
) {engine};

-- token is whose it was that is new.
create table if not exists {schema}.received (
  inbox_id bigint not null,
  id varbinary(256) not null,
  at datetime(6) not null,
  token bigint not null,
  primary key (inbox_id, id),
  key received_at (inbox_id, at)
) {engine};

-- A consumer that has received a message of a key locks a row of these and counts it, so that messages of a key take turns. Those with the negative
-- number of a queue stand for its unique keys.
create table if not exists {schema}.turns (
  inbox_id bigint not null,
  turn smallint not null,
  taken bigint not null default 0,
  primary key (inbox_id, turn)
) {engine};

-- Ids that were expected and did not come in time, and ids that were discarded. next was handed over in its
-- place.
create table if not exists {schema}.gaps (
  inbox_id bigint not null,
  id varbinary(256) not null,
  `key` varbinary(1024) not null,
  next varbinary(256),
  discarded boolean not null,
  at datetime(6) not null,
  primary key (inbox_id, id),
  key gaps_at (inbox_id, at)
) {engine};

-- Messages that came before the one they follow; gone once they are released.
create table if not exists {schema}.held (
  inbox_id bigint not null,
  id varbinary(256) not null,
  previous varbinary(256) not null,
  `key` varbinary(1024) not null,
  at datetime(6) not null,
  due datetime(6) not null,
  headers mediumblob,
  payload longblob not null,
  primary key (inbox_id, id),
  key held_previous (inbox_id, previous),
  key held_due (inbox_id, due)
) {engine};

-- The message of a key that was handed over last and not late. The key is in MyRocks too long for a primary key. behind are,
-- as JSON, the last ones of the parts of the key before it, which gaps end.
create table if not exists {schema}.key_heads (
  inbox_id bigint not null,
  key_hash varbinary(32) not null, -- SHA-256
  id varbinary(256) not null,
  behind mediumblob,
  at datetime(6) not null,
  primary key (inbox_id, key_hash),
  key key_heads_at (inbox_id, at)
) {engine};

insert into {schema}.version (version) select {version} from (select 1) one where not exists (select 1 from {schema}.version where version = {version});
