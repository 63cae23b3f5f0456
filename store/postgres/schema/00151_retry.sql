-- Parked keys that somebody wants tried at once: those whose states are no younger than n, of one or, where
-- that is empty, of all. Whoever has the lease makes them due; nobody else writes parked keys.
create table if not exists _retry (
    subscription bigint not null references _subscription on delete cascade,
    line         text collate "C" not null,
    n            bigint not null,
    primary key (subscription, line)
);
