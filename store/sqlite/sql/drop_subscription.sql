delete from penstock_parked where key_id in (select id from penstock_parked_keys where subscription_id = ?1);
delete from penstock_parked_keys where subscription_id = ?1;
delete from penstock_holds where subscription_id = ?1;
delete from penstock_dead_letters where subscription_id = ?1;
delete from penstock_replays where subscription_id = ?1;
delete from penstock_subscriptions where id = ?1;
