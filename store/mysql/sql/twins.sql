-- The unique jobs of some keys, and whether they run. A dead letter has no key in its row.
select t.seq, t.seq, t.`key`, t.created_at, t.headers, (select l.lease from {schema}.leases l force index (primary) where l.queue_id = {queue} and l.seq = t.seq) is not null
  from {jobs} t force index (of_key)
 where {t.`key` in keys} and locate('"penstock-unique-key"', t.headers) > 0
