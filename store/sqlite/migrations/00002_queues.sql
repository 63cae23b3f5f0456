-- +goose Up

-- Queues: see DESIGN.md, "Queues". The jobs of one are in a table of their own, see
-- sql/create_queue.sql; what follows holds small rows about them, by queue_id and
-- seq. A job that is not running is in one of ready, keyed and later; what moves
-- it are triggers, so that a plain INSERT or DELETE does it too. Triggers run in
-- the application's library, however old that is.

create table penstock_queues (
  id           integer primary key autoincrement,
  name         text    not null unique,
  lifo         integer not null,
  paused       integer not null default 0,
  max_attempts integer not null default 25,
  max_running  integer not null default 0,
  dedup_window integer not null default 3600000000000, -- nanoseconds
  created_at   integer not null
);

-- Jobs that may run now, in the order in which they will: rank is seq, of a
-- LIFO queue -seq.
create table penstock_ready (
  queue_id integer not null,
  grp      text    not null,
  priority integer not null,
  rank     integer not null,
  primary key (queue_id, grp, priority, rank)
) without rowid;

-- Jobs with a key that have not begun, by id. The first of each key is ready too,
-- unless the key is busy.
create table penstock_keyed (
  queue_id integer not null,
  key      text    not null,
  id       integer not null,
  grp      text    not null,
  priority integer not null,
  rank     integer not null,
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
create table penstock_later (
  queue_id integer not null,
  seq      integer not null,
  due      integer not null,
  primary key (queue_id, seq)
) without rowid;
create index penstock_later_due on penstock_later (queue_id, due);

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
  id         integer not null,
  grp        text    not null,
  priority   integer not null,
  key        text,
  headers    text,
  payload    blob    not null,
  created_at integer not null,
  history    text    not null,
  at         integer not null,
  primary key (queue_id, id)
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

-- Periodic jobs, with all that a job has.
create table penstock_schedules (
  queue_id  integer not null,
  name      text    not null,
  cron      text    not null,
  next      integer not null,
  grp       text    not null,
  priority  integer not null,
  key       text    not null,
  dedup_key text    not null,
  headers   text,
  payload   blob    not null,
  primary key (queue_id, name)
);
create index penstock_schedules_next on penstock_schedules (queue_id, next);

-- A job becomes the first of a key that is not busy: it takes the place of the
-- one that was.
-- +goose StatementBegin
create trigger penstock_keyed_joined after insert on penstock_keyed
  when not exists (select 1 from penstock_busy b where b.queue_id = new.queue_id and b.key = new.key)
   and not exists (select 1 from penstock_keyed k where k.queue_id = new.queue_id and k.key = new.key and k.id < new.id)
begin
  delete from penstock_ready
   where queue_id = new.queue_id
     and (grp, priority, rank) = (select k.grp, k.priority, k.rank from penstock_keyed k
                                   where k.queue_id = new.queue_id and k.key = new.key and k.id > new.id order by k.id limit 1);
  insert into penstock_ready (queue_id, grp, priority, rank) values (new.queue_id, new.grp, new.priority, new.rank);
end;
-- +goose StatementEnd

-- The first of a key was cancelled before it began: the second one is ready.
-- +goose StatementBegin
create trigger penstock_keyed_left after delete on penstock_keyed
  when not exists (select 1 from penstock_busy b where b.queue_id = old.queue_id and b.key = old.key)
   and not exists (select 1 from penstock_keyed k where k.queue_id = old.queue_id and k.key = old.key and k.id < old.id)
begin
  insert into penstock_ready (queue_id, grp, priority, rank)
  select k.queue_id, k.grp, k.priority, k.rank from penstock_keyed k
   where k.queue_id = old.queue_id and k.key = old.key order by k.id limit 1;
end;
-- +goose StatementEnd

-- A key's job has ended: the next one is ready.
-- +goose StatementBegin
create trigger penstock_busy_ended after delete on penstock_busy
begin
  insert into penstock_ready (queue_id, grp, priority, rank)
  select k.queue_id, k.grp, k.priority, k.rank from penstock_keyed k
   where k.queue_id = old.queue_id and k.key = old.key order by k.id limit 1;
end;
-- +goose StatementEnd

-- +goose Down
drop table penstock_schedules;
drop table penstock_dedup;
drop table penstock_dead_jobs;
drop table penstock_histories;
drop table penstock_leases;
drop table penstock_later;
drop table penstock_busy;
drop table penstock_keyed;
drop table penstock_ready;
drop table penstock_queues;
