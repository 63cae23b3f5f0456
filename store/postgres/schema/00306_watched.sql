-- Of one barrier of many jobs most ends need no notes, see functions/barriers.sql.

create sequence _barrier_watched minvalue 0;
select setval('_barrier_watched', 0);

drop function if exists _barrier_state(bigint, bigint);
