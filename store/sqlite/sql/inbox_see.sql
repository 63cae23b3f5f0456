-- ?1 inbox, ?2 ids, an array, ?3 now. Returns those that are new.
insert into penstock_received (inbox_id, id, at)
select ?1, value, ?3 from json_each(?2) where true
on conflict do nothing
returning id
