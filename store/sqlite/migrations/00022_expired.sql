-- How many jobs of a queue ended because their deadline had passed.
alter table penstock_queues add column expired integer not null default 0;
