-- ?1 inbox, ?2 an id, ?3 its predecessor's. Whether the id was reported missing; whether
-- the predecessor was received, is held, was reported missing.
select exists (select 1 from penstock_gaps where inbox_id = ?1 and id = ?2),
       exists (select 1 from penstock_received where inbox_id = ?1 and id = ?3),
       exists (select 1 from penstock_held where inbox_id = ?1 and id = ?3),
       exists (select 1 from penstock_gaps where inbox_id = ?1 and id = ?3)
