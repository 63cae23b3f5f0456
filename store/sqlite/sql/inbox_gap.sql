-- ?1 inbox, ?2 what is missing, ?3 its key, ?4 what is handed over in its place or null,
-- ?5 whether it is discarded, ?6 now.
insert into penstock_gaps (inbox_id, id, key, next, discarded, at) values (?1, ?2, ?3, ?4, ?5, ?6)
on conflict do update set next = coalesce(next, excluded.next), discarded = max(discarded, excluded.discarded),
                          at = case when excluded.discarded then excluded.at else at end
