-- An inbox, and whether its snapshot is older than a lock that it waits for: then later reads cannot be trusted.
select id, keep, current_setting('transaction_isolation') in ('repeatable read', 'snapshot')
  from {schema}.inboxes
 where consumer = {consumer}
