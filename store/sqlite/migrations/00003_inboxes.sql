-- +goose Up

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

-- What was waited for in vain, and what was discarded. next was handed over in its place.
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
  primary key (inbox_id, key)
) without rowid;
create index penstock_heads_at on penstock_heads (inbox_id, at);

-- +goose Down
drop table penstock_heads;
drop table penstock_held;
drop table penstock_gaps;
drop table penstock_received;
drop table penstock_inboxes;
