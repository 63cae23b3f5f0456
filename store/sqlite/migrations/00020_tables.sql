-- The tables of a new file, as of the version in this file's name. A later change is a
-- file with the next number; what is here is never edited.

-- The application's tables live in the same file, so every name of ours starts
-- with penstock_. No STRICT tables, no unixepoch(): an application that opens
-- the file with an older SQLite must still be able to write.
-- Times are microseconds since 1970, but for created_at of a message, which
-- producers may write: milliseconds.

-- One row per outbox. Its messages are in a separate table, see sql/create_outbox.sql.
create table penstock_outboxes (
  id              integer primary key autoincrement,
  name            text    not null unique,
  uid             text    not null, -- first part of derived message ids; new for each outbox, also of an old name
  keep_age        integer not null default 0, -- nanoseconds
  keep_bytes      integer not null default 0,
  buckets         integer not null default 1
);

-- One row per reader: its cursor, its lease and what status shows. It is
-- updated in place, which costs nothing in SQLite: there is no dead version.
create table penstock_subscriptions (
  id           integer primary key autoincrement, -- never comes again, so a stale reader cannot mistake a new row for its own
  outbox_id    integer not null,
  name         text    not null,
  position     integer not null default 0,  -- the last seq that is settled; it begins with the first message
  settles      integer not null default 0,  -- attempt of the last Settle that took effect: one whose answer was lost is not carried out twice
  ahead        text    not null default '[]', -- what a slow sink has settled behind messages that are not, by seq: [[first, last], ...]
  settled      integer not null default 0,  -- messages settled since the row was made
  rate         real    not null default 0,  -- messages per second, a decaying mean as of rate_at
  rate_at      integer not null default 0,
  holder       text    not null default '',
  holder_since integer not null default 0,
  epoch        integer not null default 0,
  lease_until  integer not null default 0,
  sink_epoch   integer not null default 0,  -- the holder of that epoch said what follows
  sink_down    integer,                     -- since when the sink takes nothing; null: it takes messages
  sink_error   text    not null default '', -- and why
  keeps_settled integer not null default 0, -- another subscription reads the messages too, or they are retained
  unique (outbox_id, name)
);

-- A message that is parked, dead or to be delivered again has a row here, and stays in its outbox: as on other plain tables.
create table penstock_entries (
  subscription_id integer not null,
  seq        integer not null,
  state      integer not null,           -- 1 parked, 2 dead letter, 3 to be delivered again; "state > 1" in lookups finds the index
  parked_key text,                       -- the key of a message that is parked in order
  head       integer not null default 0, -- nothing of its parked key is before it, or it is parked by itself
  due        integer,                    -- counts for heads
  hold       text,                       -- the key that waits for this dead letter, also while it is sent again
  attempts   integer not null default 0,
  since      integer,
  failures   text,
  died_at    integer,
  primary key (subscription_id, seq)
) without rowid;
create index penstock_entries_by_state on penstock_entries (subscription_id, state, seq) where state > 1;
create index penstock_entries_by_key on penstock_entries (subscription_id, parked_key, head, seq) where parked_key is not null;
create index penstock_entries_by_due on penstock_entries (subscription_id, due, seq) where head;
create index penstock_entries_by_hold on penstock_entries (subscription_id, hold) where hold is not null;

-- Queues: see DESIGN.md, "Queues". The jobs of one are in a separate table, see
-- sql/create_queue.sql; the tables below hold small rows about them, by queue_id and seq. A job
-- that is not running is in one of ready, keyed and scheduled; what moves it are triggers, so that
-- a plain INSERT or DELETE does it too. Triggers run in the application's library, however old that
-- is.

create table penstock_queues (
  id           integer primary key autoincrement,
  name         text    not null unique,
  lifo         integer not null,
  paused       integer not null default 0,
  max_attempts integer not null default 25,
  max_running  integer not null default 0,
  dedup_window integer not null default 3600000000000, -- nanoseconds
  policies     integer not null default 0 -- which it has: 1 is of groups, 2 is its rate
);

-- Jobs that may run now, in the order in which they will: rank is seq, of a
-- LIFO queue -seq.
create table penstock_ready (
  queue_id  integer not null,
  group_key text    not null,
  priority  integer not null,
  rank      integer not null,
  primary key (queue_id, group_key, priority, rank)
) without rowid;

-- Jobs with a key that have not begun, by id. The first of each key is ready too,
-- unless the key is busy.
create table penstock_keyed (
  queue_id  integer not null,
  key       text    not null,
  id        integer not null,
  group_key text    not null,
  priority  integer not null,
  rank      integer not null,
  primary key (queue_id, key, id)
) without rowid;

-- Keys with a job that has begun and not ended: it runs, or waits to be tried
-- again.
create table penstock_busy (
  queue_id integer not null,
  key      text    not null,
  seq      integer not null,
  primary key (queue_id, key)
) without rowid;

-- Jobs whose time has not come.
create table penstock_scheduled (
  queue_id integer not null,
  seq      integer not null,
  due      integer not null,
  primary key (queue_id, seq)
) without rowid;
create index penstock_scheduled_due on penstock_scheduled (queue_id, due);

-- Jobs that were claimed.
create table penstock_leases (
  lease    integer primary key autoincrement, -- never comes again, so a late ack cannot mean another claim
  queue_id integer not null,
  seq      integer not null,
  attempt  integer not null,
  until    integer not null,
  worker   text    not null,
  unique (queue_id, seq)
);
create index penstock_leases_until on penstock_leases (queue_id, until);

-- What jobs have been through; none of a job that never failed.
create table penstock_histories (
  queue_id integer not null,
  seq      integer not null,
  history  text    not null, -- attempts and failures as JSON
  primary key (queue_id, seq)
) without rowid;

-- Jobs that were given up.
create table penstock_dead_jobs (
  queue_id   integer not null,
  seq        integer not null,
  group_key  text    not null,
  priority   integer not null,
  key        text,
  headers    text,
  payload    blob    not null,
  created_at integer not null,
  history    text    not null,
  at         integer not null,
  primary key (queue_id, seq)
);

-- Which job came first with a dedup key.
create table penstock_dedup (
  queue_id  integer not null,
  dedup_key text    not null,
  id        integer not null,
  at        integer not null,
  primary key (queue_id, dedup_key)
) without rowid;
create index penstock_dedup_at on penstock_dedup (queue_id, at);

-- Periodic jobs. job is JSON.
create table penstock_schedules (
  queue_id     integer not null,
  name         text    not null,
  cron         text    not null,
  next         integer not null,
  job          text    not null default '',
  paused       integer not null default 0,
  skip_overlap integer not null default 0,
  last_job     integer not null default 0, -- 0: it has made none
  primary key (queue_id, name)
);
create index penstock_schedules_next on penstock_schedules (queue_id, next);

-- The policies of groups, that of all groups that have no other, '*', and the rate of a queue as a whole. policy is a penstock.GroupPolicy, empty of a group that is only
-- held. By its rate jobs start a pace apart; one may come early by slack, less one pace, and none waits longer than per. These are nanoseconds, and held_until is microseconds.
create table penstock_group_policies (
  queue_id    integer not null,
  whole       integer not null,
  group_key   text    not null,
  policy      text    not null,
  max_running integer not null,
  weight      integer not null,
  pace        integer not null,
  slack       integer not null,
  per         integer not null,
  held_until  integer not null,
  reason      text    not null,
  primary key (queue_id, group_key, whole)
) without rowid;
-- When the next job of a group, or of a queue as a whole, may start by its rate, in nanoseconds.
create table penstock_group_starts (
  queue_id  integer not null,
  whole     integer not null,
  group_key text    not null,
  next      integer not null,
  primary key (queue_id, group_key, whole)
) without rowid;

-- A job becomes the first of a key that is not busy: it takes the place of the
-- one that was.
create trigger penstock_keyed_joined after insert on penstock_keyed
  when not exists (select 1 from penstock_busy b where b.queue_id = new.queue_id and b.key = new.key)
   and not exists (select 1 from penstock_keyed k where k.queue_id = new.queue_id and k.key = new.key and k.id < new.id)
begin
  delete from penstock_ready
   where queue_id = new.queue_id
     and (group_key, priority, rank) = (select k.group_key, k.priority, k.rank from penstock_keyed k
                                   where k.queue_id = new.queue_id and k.key = new.key and k.id > new.id order by k.id limit 1);
  insert into penstock_ready (queue_id, group_key, priority, rank) values (new.queue_id, new.group_key, new.priority, new.rank);
end;

-- The first of a key was cancelled before it began: the second one is ready.
create trigger penstock_keyed_left after delete on penstock_keyed
  when not exists (select 1 from penstock_busy b where b.queue_id = old.queue_id and b.key = old.key)
   and not exists (select 1 from penstock_keyed k where k.queue_id = old.queue_id and k.key = old.key and k.id < old.id)
begin
  insert into penstock_ready (queue_id, group_key, priority, rank)
  select k.queue_id, k.group_key, k.priority, k.rank from penstock_keyed k
   where k.queue_id = old.queue_id and k.key = old.key order by k.id limit 1;
end;

-- A key's job has ended: the next one is ready.
create trigger penstock_busy_ended after delete on penstock_busy
begin
  insert into penstock_ready (queue_id, group_key, priority, rank)
  select k.queue_id, k.group_key, k.priority, k.rank from penstock_keyed k
   where k.queue_id = old.queue_id and k.key = old.key order by k.id limit 1;
end;

-- Inboxes: what consumers have received. One writer at a time, so plain rows do.

create table penstock_inboxes (
  id         integer primary key autoincrement,
  consumer   text    not null unique,
  keep       integer not null, -- microseconds
  created_at integer not null
);

create table penstock_received (
  inbox_id integer not null,
  id       text    not null,
  at       integer not null,
  primary key (inbox_id, id)
) without rowid;
create index penstock_received_at on penstock_received (inbox_id, at);

-- Ids that were expected and did not come in time, and ids that were discarded. next was handed over in its
-- place.
create table penstock_gaps (
  inbox_id  integer not null,
  id        text    not null,
  key       text    not null,
  next      text,
  discarded integer not null default 0,
  at        integer not null,
  primary key (inbox_id, id)
) without rowid;
create index penstock_gaps_at on penstock_gaps (inbox_id, at);

-- Messages that came before the one they follow; gone once they are released.
create table penstock_held (
  n        integer primary key autoincrement,
  inbox_id integer not null,
  id       text    not null,
  previous text    not null,
  key      text    not null,
  at       integer not null,
  due      integer not null,
  headers  text,
  payload  blob    not null,
  unique (inbox_id, id)
);
create index penstock_held_previous on penstock_held (inbox_id, previous);
create index penstock_held_due on penstock_held (inbox_id, due);

-- The message of a key that was handed over last and not late.
create table penstock_heads (
  inbox_id integer not null,
  key      text    not null,
  id       text    not null,
  at       integer not null,
  behind   text, -- the last messages of the parts of the key before its head, which gaps end, as JSON
  primary key (inbox_id, key)
) without rowid;
create index penstock_heads_at on penstock_heads (inbox_id, at);
