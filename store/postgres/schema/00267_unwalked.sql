-- Where {take_keyed} goes on is drawn anew by each call.
alter table _skip_map drop column walked;
