-- Changes of a barrier in many parts at once have one row, see functions/barriers.sql. _admit passes on the rows that it has read to _admitted.

alter table _barrier add column parts bigint[];

drop function if exists _admit(integer, text, integer, bigint[]);
drop function if exists _admitted(integer, text, _group_state, bigint[], boolean);
