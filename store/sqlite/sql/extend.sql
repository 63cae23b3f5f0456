-- Found by their numbers, as in ack.sql.
update penstock_leases
   set until = ?4
 where lease in (select value from json_each(?1)) and +queue_id = ?2 and +until > ?3
returning lease
