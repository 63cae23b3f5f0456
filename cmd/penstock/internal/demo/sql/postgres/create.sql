-- The airline's own tables. They share a separate schema, found through search_path.
create table aircraft (
  tailnum text   primary key,
  flights bigint not null -- how many of its flights have been committed
);

create table flights (
  id                  bigint    primary key,
  scheduled_departure timestamp not null,
  carrier             text      not null,
  flight              integer   not null,
  tailnum             text      references aircraft,
  turn                bigint    not null, -- the aircraft's how-manieth flight; 0 without a tail number
  origin              text      not null,
  dest                text      not null,
  dep_time            integer,
  dep_delay_min       integer,
  arr_delay_min       integer,
  distance_mi         integer   not null
);
