-- The segments of outboxes that are sealed and have rows: which subscriptions have not settled them, and, of those
-- that nobody needs, the oldest transaction that has one locked.
select o.name, s.slot, pg_total_relation_size(s.oid), (select count(*) from {schema}._segments(o.name)), h.names, h.retained,
       coalesce(l.who, ''), coalesce(l.seconds, 0)::float8
  from {schema}._outbox o
 cross join lateral {schema}._segments(o.name) s
 cross join lateral (
    select array(select u.name from {schema}._subscription u where u.outbox = o.name and {schema}._unsettled_in(s.oid::regclass, u.id) order by u.name)
             || case when exists (select from {schema}._subscription u where u.outbox = o.name) then '{}' else array['(there is none yet)'] end as names,
           {schema}._retained(o.name, s.oid::regclass) as retained) h
  left join lateral (
    select format('session %s (%s, %s)', a.pid, a.usename, coalesce(nullif(a.application_name, ''), a.backend_type)) as who, extract(epoch from clock_timestamp() - a.xact_start) as seconds
      from pg_locks k join pg_stat_activity a on a.pid = k.pid
     where k.relation = s.oid and k.granted and k.pid <> pg_backend_pid() and k.database = (select d.oid from pg_database d where d.datname = current_database())
     order by a.xact_start limit 1) l on true
 where s.slot <> pg_sequence_last_value({schema}._q(format('_%s.slot', o.name))::regclass) and pg_relation_size(s.oid) > 0
 order by o.name, s.slot
 limit 10000
