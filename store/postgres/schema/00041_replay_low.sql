-- The bound of a replay's cursor. After a restore into a cluster with lower xids, rows up to
-- it are settled whatever their xid.
alter table _replay add column low bigint not null default 0;
