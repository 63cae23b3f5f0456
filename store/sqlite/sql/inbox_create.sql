insert into {schema}.inboxes (consumer, keep, created_at) values ({consumer}, {keep}, {clock})
