-- Makes lines due that wait for another attempt: those of the keys, or all.
update penstock_lines set due = :now
 where subscription_id = :subscription and due > :now and (:all or key <> '' and key in (select value from json_each(:keys)))
