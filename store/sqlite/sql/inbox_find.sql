select id, keep, false from {schema}.inboxes where consumer = {consumer}
