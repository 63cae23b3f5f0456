-- Until now maintenance looked at all keys whether one could go on; now it looks at those that it is told of, see _promote: here all that wait. Once
-- more a little later, for those whose job is ended just now.
insert into _scheduled (id, queue, attempt, due, created_at, priority, group_key, key, payload)
select hashtextextended(l.key, l.queue), -l.queue, 0, clock_timestamp() + p.pause, clock_timestamp(), 0, '', l.key, ''::bytea
  from (select distinct l.queue, l.key from _scheduled l where l.key is not null and l.due = 'infinity') l, unnest('{0,1 min}'::interval[]) p(pause);

-- The jobs of a key that are before others, or wait for others: those that are only delayed are neither, and nobody steps over them.
do $$ begin
    execute (select 'drop index ' || i.indexrelid::regclass from pg_index i where i.indrelid = '_scheduled'::regclass and i.indpred is not null);
end $$;

create index on _scheduled (queue, key, id) where key is not null and (attempt <> 0 or due = 'infinity');
