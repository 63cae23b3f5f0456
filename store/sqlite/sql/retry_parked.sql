-- Makes keys due that wait for another attempt: those given, or all.
update penstock_parked_keys set due = :now
 where subscription_id = :subscription and due > :now and (:all or key <> '' and key in (select value from json_each(:keys)))
