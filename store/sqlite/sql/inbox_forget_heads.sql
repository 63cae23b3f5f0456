-- ?1 inbox, ?2 until when what was handed over can be forgotten, ?3 at most how many keys.
delete from penstock_heads
 where inbox_id = ?1
   and key in (select key from penstock_heads where inbox_id = ?1 and at < ?2 order by at limit ?3)
