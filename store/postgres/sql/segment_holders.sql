-- The segments of outboxes that are sealed and have rows: which subscriptions have not settled them, and whether the outbox has none yet. Of those
-- that no subscription needs, the oldest transaction that has one locked. All locks are read once: each look at them stops who locks.
with held as materialized (
    select distinct on (k.relation) k.relation, format('session %s (%s, %s)', a.pid, a.usename, coalesce(nullif(a.application_name, ''), a.backend_type)) as who,
           extract(epoch from clock_timestamp() - a.xact_start) as seconds
      from pg_locks k join pg_stat_activity a on a.pid = k.pid
     where k.granted and k.pid <> pg_backend_pid() and k.database = (select d.oid from pg_database d where d.datname = current_database())
     order by k.relation, a.xact_start)
select o.name, s.slot, pg_total_relation_size(s.oid), s.segments, h.subscriptions, not exists (select from {schema}._subscription u where u.outbox = o.name), h.retained, coalesce(l.who, ''), coalesce(l.seconds, 0)::float8
  from {schema}._outbox o
 cross join lateral (select g.slot, g.oid, count(*) over () as segments from {schema}._segments(o.name) g) s
 cross join lateral {schema}._holders(o.name, s.slot) h
  left join held l on l.relation = s.oid
 where s.slot <> pg_sequence_last_value({schema}._q(format('_%s.slot', o.name))::regclass) and pg_relation_size(s.oid) > 0
 order by o.name, s.slot
 limit 10000
