-- The airline's own tables, in a separate database. demo is replaced by its name, and {engine} by the clause of the outbox's engine.
create table demo.aircraft (
  tailnum varchar(20) not null primary key,
  flights bigint      not null -- how many of its flights have been committed
) {engine};

create table demo.flights (
  id                  bigint      not null primary key,
  scheduled_departure datetime    not null,
  carrier             varchar(20) not null,
  flight              int         not null,
  tailnum             varchar(20),
  turn                bigint      not null, -- the aircraft's how-manieth flight; 0 without a tail number
  origin              varchar(20) not null,
  dest                varchar(20) not null,
  dep_time            int,
  dep_delay_min       int,
  arr_delay_min       int,
  distance_mi         int         not null
) {engine};
