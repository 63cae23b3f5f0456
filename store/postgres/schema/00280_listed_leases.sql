-- The leases of groups are listed in _group_state: an index of them would cost each claim.

alter table _group_state drop column upto, add column since bigint;
alter table _lease drop column counted, add column listed boolean;

drop function if exists _admit(int, text, int, bigint[]);
drop function if exists _admitted(int, text, int);
drop function if exists _count_group(int, text, bigint[], bigint, bigint[]);
drop function if exists _mark_leases(int);
