-- ?1 inbox, ?2 an id, ?3 its predecessor's. What was handed over in place of the id if that was
-- reported missing, '' if nothing was; whether the predecessor was received, is held, was reported missing.
select (select coalesce(next, '') from penstock_gaps where inbox_id = ?1 and id = ?2),
       exists (select 1 from penstock_received where inbox_id = ?1 and id = ?3),
       exists (select 1 from penstock_held where inbox_id = ?1 and id = ?3),
       exists (select 1 from penstock_gaps where inbox_id = ?1 and id = ?3)
