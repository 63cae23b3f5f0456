-- Sessions that have had advisory locks of Penstock's for long, and how many wait for them. Penstock takes them for a transaction only;
-- the one that jobs of keys share (1885695588) lasts as long as a handler that works in the job's transaction.
--   $1 for how long
select a.pid::bigint, coalesce(a.usename, '')::text, coalesce(a.application_name, ''), extract(epoch from statement_timestamp() - coalesce(a.xact_start, a.state_change))::float8, count(*),
       coalesce(sum((select count(*) from pg_locks w
                      where w.locktype = 'advisory' and not w.granted and w.database = l.database and w.classid = l.classid and w.objid = l.objid and w.objsubid = 2)), 0)::bigint
  from pg_locks l
  join pg_stat_activity a on a.pid = l.pid
 where l.locktype = 'advisory' and l.granted and l.objsubid = 2
   and l.database = (select d.oid from pg_database d where d.datname = current_database())
   and (l.classid between 1885695585 and 1885695599
        or l.classid in (select c.oid from pg_class c where c.relnamespace = (select m.relnamespace from pg_class m where m.oid = to_regclass('{schema}._migration'))))
   and not (l.classid = 1885695588 and l.mode = 'ShareLock')
   and (coalesce(a.xact_start, a.state_change) < statement_timestamp() - $1::interval) is not false -- null without the right to see it
 group by 1, 2, 3, 4
 order by 4 desc
