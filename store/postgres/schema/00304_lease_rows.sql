-- A row of 20 small jobs is not split if they have headers, just as without. That takes twice as long to write and to read.

alter table _lease_0 set (toast_tuple_target = 4080);
alter table _lease_1 set (toast_tuple_target = 4080);
