-- +goose Up
-- A message that is parked, dead or to be delivered again has a row here, and stays in its outbox: as on other plain tables. The migration in Go that
-- follows puts copies back.
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
