-- A replay leaves out what was parked or a dead letter when it was requested.
alter table _replay add column others int8multirange not null default '{}';
