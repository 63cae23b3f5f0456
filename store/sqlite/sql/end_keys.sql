-- Keys of which nothing is parked any more.
delete from penstock_parked_keys
 where id in (select value from json_each(?)) and head is null and due is not null
