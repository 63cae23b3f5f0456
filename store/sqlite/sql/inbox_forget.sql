-- ?1 inbox, ?2 until when what was received can be forgotten, ?3 at most how many. What is
-- held stays known.
delete from penstock_received
 where inbox_id = ?1
   and id in (select r.id from penstock_received r
               where r.inbox_id = ?1 and r.at < ?2
                 and not exists (select 1 from penstock_held h where h.inbox_id = ?1 and h.id = r.id)
               order by r.at limit ?3)
