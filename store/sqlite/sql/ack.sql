-- Found by their numbers: the + keeps SQLite from going through all leases of the
-- queue. One that has ended settles nothing, though a store may let it: as in held_lease.sql, the time decides.
delete from penstock_leases
 where lease in (select value from json_each(?1)) and +queue_id = ?2 and +until > ?3
returning lease, seq
