-- The texts of which _define and _define_inbox make the functions of each queue and inbox: create statements with words in braces.
create table _template (
    kind text collate "C" not null, -- queue or inbox
    name text collate "C" not null, -- what its functions are about
    body text not null,             -- _fill and _define_inbox say what stands for the words in braces
    primary key (kind, name)
);

-- They were functions before.
drop function if exists _skip_map_functions();
drop function if exists _take_function();
drop function if exists _scan_function();
drop function if exists _dequeue_function();
drop function if exists _enqueue_functions();
drop function if exists _lease_functions();
drop function if exists _key_functions();
drop function if exists _group_functions();
drop function if exists _door_functions();
drop function if exists _inbox_id_functions();
drop function if exists _inbox_order_functions();
drop function if exists _inbox_maintenance_functions();
drop function if exists _inbox_operator_functions();
