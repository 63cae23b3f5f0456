delete {schema}.dedup from {schema}.dedup force index (dedup_at) where queue_id = {queue}
   and at > {since} - interval ((select q.dedup_window from {schema}.queues q where q.id = {queue}) div 1000) microsecond
   and at <= utc_timestamp(6) - interval ((select q.dedup_window from {schema}.queues q where q.id = {queue}) div 1000) microsecond
