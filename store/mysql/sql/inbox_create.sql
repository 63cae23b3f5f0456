insert into {schema}.inboxes (consumer, keep) values ({consumer}, {keep})
