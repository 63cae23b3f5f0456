-- ?1 inbox, ?2 until when gaps can be forgotten, ?3 at most how many.
delete from penstock_gaps
 where inbox_id = ?1
   and id in (select id from penstock_gaps where inbox_id = ?1 and at < ?2 order by at limit ?3)
