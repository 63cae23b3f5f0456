-- _step_back_for_dumps raises lock_not_available if a dump may be about to read the rows that its caller moves and
-- truncates. The caller has the segment locked exclusively. The dump's snapshot is older than the move, so it would find
-- the rows in neither segment: TRUNCATE is not MVCC, and a copy is. Call it when the segment is locked, and again as the
-- last step: it then sees a dump that came meanwhile and waits for that lock. On the error, undo the move and try again
-- later.
--
-- A dump that reads the segment already would have kept the caller from locking it. It looks for two kinds of session
-- that have a snapshot and have not yet come to lock the segment. One is a pg_dump, by its name, because it locks all
-- tables before it reads the first. The other waits for the lock to read another table. It takes a pg_dump of other
-- schemas for one that will come.
create or replace function _step_back_for_dumps(segment regclass) returns void
language plpgsql volatile set search_path from current as $$ begin
    if _dump_is_coming(segment) then
        raise exception 'a dump is about to read %', segment using errcode = '55P03';
    end if;
end $$;

-- _dump_is_coming says whether a dump may be about to read the segment, see _step_back_for_dumps. It looks at the sessions as they
-- are now, and locks nothing.
create or replace function _dump_is_coming(segment regclass) returns boolean
language plpgsql volatile set search_path from current as $$ begin
    perform pg_stat_clear_snapshot(); -- a transaction is shown the sessions as they were when it looked first
    return exists (select from pg_stat_activity a
                    where a.datname = current_database() and a.pid <> pg_backend_pid()
                      and (a.application_name like $re$pg\_dump%$re$
                           or a.backend_xmin is not null
                              and exists (select from pg_locks l
                                           where l.pid = a.pid and not l.granted and l.mode = 'AccessShareLock'
                                             and l.locktype = 'relation' and l.relation <> segment)));
end $$;

-- _is_dumped says whether a pg_dump has the segment locked. Then its lock is not to be asked for: pg_dump --jobs
-- fails where anybody waits for an exclusive one, be it for milliseconds.
create or replace function _is_dumped(segment regclass) returns boolean
language sql volatile set search_path from current as $$
    select exists (select from pg_locks l join pg_stat_activity a on a.pid = l.pid
                    where l.locktype = 'relation' and l.relation = segment and l.granted
                      and l.database = (select d.oid from pg_database d where d.datname = current_database())
                      and a.application_name like $re$pg\_dump%$re$) $$;
