-- +goose Up

-- The application's tables live in the same file, so every name of ours starts
-- with penstock_. No STRICT tables, no unixepoch(): an application that opens
-- the file with an older SQLite must still be able to write.
-- Times are microseconds since 1970, but for created_at of a message, which
-- producers may write: milliseconds.

-- One row per outbox. Its messages are in a table of their own, see
-- sql/create_outbox.sql.
create table penstock_outboxes (
  id              integer primary key autoincrement,
  name            text    not null unique,
  uid             text    not null, -- first part of derived message ids; new for each outbox, also of an old name
  retention_age   integer not null default 0, -- nanoseconds
  retention_bytes integer not null default 0,
  created_at      integer not null
);

-- One row per reader: its cursor, its lease and what status shows. It is
-- updated in place, which costs nothing in SQLite: there is no dead version.
create table penstock_subscriptions (
  id           integer primary key autoincrement, -- never comes again, so a stale reader cannot mistake a new row for its own
  outbox_id    integer not null,
  name         text    not null,
  position     integer not null,            -- the last seq that is settled
  batch        integer not null default 0,  -- the last batch of this epoch that is settled
  settled      integer not null default 0,  -- messages settled since the row was made
  rate         real    not null default 0,  -- messages per second, a decaying mean as of rate_at
  rate_at      integer not null default 0,
  holder       text    not null default '',
  holder_since integer not null default 0,
  epoch        integer not null default 0,
  lease_until  integer not null default 0,
  unique (outbox_id, name)
);

-- One row per line of parked messages: those of one key, or one message that
-- stands alone. A line exists while there are messages in it or a hold on it.
create table penstock_lines (
  id              integer primary key autoincrement, -- what was handed out is remembered by it
  subscription_id integer not null,
  key             text    not null, -- '' of a message that stands alone
  alone           integer not null, -- its seq; 0 of a key's line
  head            integer,          -- the lowest seq in the line; null without messages
  due             integer,          -- when the head comes again; null while the line is held
  unique (subscription_id, key, alone)
);
create index penstock_lines_due on penstock_lines (subscription_id, due) where due is not null;

-- Copies of the messages in lines, because the outbox does not wait for them.
create table penstock_parked (
  number     integer primary key,
  line_id    integer not null,
  seq        integer not null,
  id         text,
  key        text,
  topic      text    not null,
  headers    text,
  payload    blob    not null,
  created_at integer not null,
  history    text,             -- attempts and failures as JSON; null of a message that was never refused
  unique (line_id, seq)
);

-- Messages that were given up. One that is sent back moves to a line.
create table penstock_dead_letters (
  subscription_id integer not null,
  seq        integer not null,
  id         text,
  key        text,
  topic      text    not null,
  headers    text,
  payload    blob    not null,
  created_at integer not null,
  history    text    not null,
  at         integer not null,
  primary key (subscription_id, seq)
);

-- Keys that wait for a person: until the message is discarded, or sent back and
-- delivered.
create table penstock_holds (
  subscription_id integer not null,
  seq             integer not null,
  key             text    not null,
  primary key (subscription_id, seq)
);
create index penstock_holds_key on penstock_holds (subscription_id, key, seq);

-- What is to be delivered again; a row goes when it is.
create table penstock_replays (
  id              integer primary key autoincrement,
  subscription_id integer not null,
  position        integer not null, -- the last seq that is settled once more
  last            integer not null, -- the seq it ends with
  created_from    integer not null, -- bounds of created_at: this or later,
  created_to      integer not null  -- and before this
);
create index penstock_replays_subscription on penstock_replays (subscription_id, id);

-- +goose Down
drop table penstock_replays;
drop table penstock_holds;
drop table penstock_dead_letters;
drop table penstock_parked;
drop table penstock_lines;
drop table penstock_subscriptions;
drop table penstock_outboxes;
