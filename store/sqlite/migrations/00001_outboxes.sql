-- +goose Up

-- The application's tables live in the same file, so every name of ours starts
-- with penstock_. No STRICT tables, no unixepoch(): an application that opens
-- the file with an older SQLite must still be able to write.

-- One row per outbox. Its messages are in a table of their own, see
-- sql/create_outbox.sql.
create table penstock_outboxes (
  id         integer primary key autoincrement,
  name       text    not null unique,
  uid        text    not null, -- first part of derived message ids; new for each outbox, also of an old name
  created_at integer not null  -- milliseconds since 1970, like every time here
);

-- One row per reader: its cursor, its lease and what status shows. It is
-- updated in place, which costs nothing in SQLite: there is no dead version.
create table penstock_subscriptions (
  id          integer primary key autoincrement, -- never comes again, so a stale reader cannot mistake a new row for its own
  outbox_id   integer not null,
  name        text    not null,
  position    integer not null,            -- the last seq that is settled
  settled     integer not null default 0,  -- messages settled since the row was made
  rate        real    not null default 0,  -- messages per second, a decaying mean as of rate_at
  rate_at     integer not null default 0,
  retries     integer not null default 0,  -- the last number given to a dead letter sent back
  holder      text    not null default '',
  epoch       integer not null default 0,
  lease_until integer not null default 0,
  unique (outbox_id, name)
);

-- Copies, because the outbox does not wait for them. A row with a retry number
-- is on its way back to its subscription and stays until it is settled there.
create table penstock_dead_letters (
  subscription_id integer not null,
  seq        integer not null,
  id         text,
  key        text,
  topic      text    not null,
  headers    text,
  payload    blob    not null,
  created_at integer not null,
  attempt    integer not null,
  error      text    not null,
  at         integer not null,
  retry      integer,
  primary key (subscription_id, seq)
);
create index penstock_dead_letters_retry on penstock_dead_letters (subscription_id, retry) where retry is not null;

-- +goose Down
drop table penstock_dead_letters;
drop table penstock_subscriptions;
drop table penstock_outboxes;
