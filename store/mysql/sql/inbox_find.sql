-- Whether what it reads behind a lock is from before it, it finds out there.
select id, keep, false from {schema}.inboxes where consumer = {consumer}
