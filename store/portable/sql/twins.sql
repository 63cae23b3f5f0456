-- The unique jobs of some keys, and whether they run.
select t.seq, t.seq, t.key, t.created_at, t.headers, (select min(l.lease) from {schema}.leases l where l.seq = t.seq) is not null
  from {jobs} t
 where {t.key in keys} and t.key <> '' and t.headers ->> 'penstock-unique-key' = t.key
