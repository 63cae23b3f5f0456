-- The segments of outboxes that are sealed and have rows: which subscriptions have not settled them, and whether the outbox has none yet. Of those
-- that no subscription needs, the oldest transaction that has one locked. All locks are read once: each look at them stops who locks.
-- A prepared transaction has locks without a session: that of its transaction id says which it is.
with locks as materialized (select k.* from pg_locks k where k.granted and k.pid is distinct from pg_backend_pid()),
held as materialized (
    select distinct on (k.relation) k.relation, case when a.pid is null then format('prepared transaction %L (%s)', p.gid, p.owner)
                else format('session %s (%s, %s)', a.pid, a.usename, coalesce(nullif(a.application_name, ''), a.backend_type)) end as who, p.gid,
           extract(epoch from clock_timestamp() - coalesce(a.xact_start, p.prepared)) as seconds
      from locks k
      left join pg_stat_activity a on a.pid = k.pid
      left join (select x.virtualtransaction, p.gid, p.owner, p.prepared from locks x join pg_prepared_xacts p on p.transaction = x.transactionid
                  where x.pid is null and p.database = current_database()) p on k.pid is null and p.virtualtransaction = k.virtualtransaction
     where k.database = (select d.oid from pg_database d where d.datname = current_database()) and (a.pid is not null or p.gid is not null)
     order by k.relation, coalesce(a.xact_start, p.prepared))
select o.name, s.slot, pg_total_relation_size(s.oid), s.segments, h.subscriptions, not exists (select from {schema}._subscription u where u.outbox = o.name), h.retained, coalesce(l.who, ''), coalesce(quote_literal(l.gid), ''), coalesce(l.seconds, 0)::float8
  from {schema}._outbox o
 cross join lateral (select g.slot, g.oid, count(*) over () as segments from {schema}._segments(o.name) g) s
 cross join lateral {schema}._holders(o.name, s.slot) h
  left join held l on l.relation = s.oid
 where s.slot <> pg_sequence_last_value({schema}._q(format('_%s.slot', o.name))::regclass) and pg_relation_size(s.oid) > 0
 order by o.name, s.slot
 limit 10000
