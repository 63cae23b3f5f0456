-- The unique jobs of some keys, and whether they run.
select coalesce(t.id, t.seq), t.seq, t.key, t.created_at * 1000, t.headers, exists (select 1 from penstock_leases l where l.queue_id = {queue} and l.seq = t.seq)
  from {jobs} t
 where {t.key in keys} and json_extract(t.headers, '$."penstock-unique-key"') is not null
