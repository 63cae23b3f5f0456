-- The airline's own tables, in the same file as the outbox. demo_ is replaced
-- by a prefix of the run's own.
create table demo_aircraft (
  tailnum text    primary key,
  flights integer not null -- how many of its flights have been committed
) strict, without rowid;

create table demo_flights (
  id                  integer primary key,
  scheduled_departure text    not null,
  carrier             text    not null,
  flight              integer not null,
  tailnum             text    references demo_aircraft,
  turn                integer not null, -- the aircraft's how-manieth flight; 0 without a tail number
  origin              text    not null,
  dest                text    not null,
  dep_time            integer,
  dep_delay_min       integer,
  arr_delay_min       integer,
  distance_mi         integer not null
) strict;
