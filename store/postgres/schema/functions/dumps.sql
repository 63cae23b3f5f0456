-- _step_back_for_dumps raises lock_not_available if a dump may be about to read rows that its caller moves and truncates.
-- A dump whose snapshot is older would find them in neither segment: TRUNCATE is not MVCC, and a copy is. The caller has
-- locked the segment exclusively, so no dump reads it now. It calls this once it has the lock, and again as its last
-- step, which sees a dump that came meanwhile and waits for the lock. On the error it undoes the move and tries later.
create or replace function _step_back_for_dumps(segment regclass) returns void
language plpgsql volatile set search_path from current as $$ begin
    if _dump_is_coming(segment) then
        raise exception 'a dump is about to read %', segment using errcode = '55P03';
    end if;
end $$;

-- _dump_is_coming returns whether a dump may be about to read the segment. It takes a pg_dump for one by its
-- name, also one of other schemas, and a session with a snapshot that waits for the lock to read another table. It looks at the sessions as
-- they are now, and locks nothing.
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

-- _is_dumped returns whether a pg_dump has the segment locked. Then its lock is not to be asked for: pg_dump --jobs
-- fails where anybody waits for an exclusive one, be it for milliseconds.
create or replace function _is_dumped(segment regclass) returns boolean
language sql volatile set search_path from current as $$
    select exists (select from pg_locks l join pg_stat_activity a on a.pid = l.pid
                    where l.locktype = 'relation' and l.relation = segment and l.granted
                      and l.database = (select d.oid from pg_database d where d.datname = current_database())
                      and a.application_name like $re$pg\_dump%$re$) $$;
