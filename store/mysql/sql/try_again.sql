insert into {schema}.tries (queue_id, seq, group_key, `key`, due, attempts, since, failures)
select {queue}, l.seq, l.group_key, l.`key`, utc_timestamp(6) + interval {after} microsecond, {attempts}, {since}, {failures}
  from {schema}.leases l straight_join {jobs} t force index (primary) on t.seq = l.seq where l.lease = {lease}
