-- The words of the public SQL: group_key (it was grp) and penstock_scheduled (penstock_later). Names that SQLite cannot
-- change, of triggers and constraints, are changed in its schema. The columns of queues' tables follow, see renameWords.

pragma writable_schema = on;

update sqlite_schema
   set name = replace(substr(name, 1, 18), 'later', 'scheduled') || substr(name, 19),
       sql = substr(sql, 1, instr(sql, 'penstock_later_of_') - 1) || 'penstock_scheduled_of_' || substr(sql, instr(sql, 'penstock_later_of_') + 18)
 where type = 'trigger' and name like 'penstock\_later\_of\_%' escape '\';

update sqlite_schema set sql = replace(sql, '"grp must be text of at most 256 bytes without NUL"', '"group_key must be text of at most 256 bytes without NUL"')
 where type = 'table' and name like 'penstock\_queue\_%' escape '\';

pragma writable_schema = reset;

alter table penstock_later rename to penstock_scheduled;
drop index penstock_later_due;
create index penstock_scheduled_due on penstock_scheduled (queue_id, due);

alter table penstock_ready rename column grp to group_key;
alter table penstock_keyed rename column grp to group_key;
alter table penstock_dead_jobs rename column grp to group_key;
alter table penstock_schedules rename column grp to group_key;
