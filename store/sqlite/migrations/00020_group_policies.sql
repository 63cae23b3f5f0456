-- +goose Up
-- Which policies the queue has: 1 is of groups, 2 is its rate.
alter table penstock_queues add column policies integer not null default 0;
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
