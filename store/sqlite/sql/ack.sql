-- Found by their numbers: the + keeps SQLite from going through all leases of the
-- queue.
delete from penstock_leases
 where lease in (select value from json_each(?1)) and +queue_id = ?2 and +until > ?3
returning lease, seq
