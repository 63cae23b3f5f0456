-- An inbox, and whether its snapshot is older than a lock that it waits for: then nobody may trust what is read behind that.
select id, keep, current_setting('transaction_isolation') in ('repeatable read', 'snapshot')
  from {schema}.inboxes
 where consumer = {consumer}
