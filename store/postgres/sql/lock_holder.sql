-- The session that has tables of the queue or outbox $2 locked for longest, or of the inbox with this consumer, and for how many seconds.
-- A prepared transaction has locks without a session.
with locked as (
    select k.pid
      from pg_locks k
      join pg_class c on c.oid = k.relation
      left join {schema}._inbox i on i.consumer = $2 and $3
     cross join lateral (select coalesce('__inbox.' || i.id, '_' || $2) || '.') p(prefix)
     where k.granted and k.pid is distinct from pg_backend_pid() and k.database = (select d.oid from pg_database d where d.datname = current_database())
       and c.relnamespace = quote_ident($1)::regnamespace
       and (c.relname = $2 and not $3 or starts_with(c.relname::text, p.prefix) and ($3 or position('.' in substr(c.relname::text, length(p.prefix) + 1)) = 0)))
select coalesce(format('session %s (%s, %s)', a.pid, a.usename, coalesce(nullif(a.application_name, ''), a.backend_type)), 'a prepared transaction'),
       coalesce(extract(epoch from clock_timestamp() - a.xact_start), 0)::float8
  from locked k
  left join pg_stat_activity a on a.pid = k.pid
 order by a.xact_start nulls first
 limit 1
