-- The queues that the role may look at, of these names ($1) if it is not null: their settings, and the sizes of their segments. An empty segment's
-- indexes have a page each, and so has its TOAST table's; a look at each of those would open seven files.
select q.name, q.lifo, q.paused, q.max_attempts, coalesce(q.max_running, 0), q.rate, (extract(epoch from q.per) * 1000000)::bigint, q.burst,
       (extract(epoch from q.dedup_window) * 1000000)::bigint,
       coalesce((extract(epoch from q.keep_done) * 1000000)::bigint, 0), q.keep_done_bytes,
       case when q.done_since is null then 0 else (select sum(pg_total_relation_size(i.inhrelid)) from pg_inherits i where i.inhparent = to_regclass({schema}._q(format('_%s.done', q.name)))) end::bigint,
       coalesce(pg_sequence_last_value(to_regclass({schema}._q(format('_%s.ring', q.name)))) % 1024, 0), s.slots, s.bytes
  from {schema}._queue q
 cross join lateral (
    select array_agg(s.slot order by s.slot) as slots,
           array_agg(coalesce(case when pg_relation_size(s.oid) > 0 then pg_total_relation_size(s.oid)
                                   else ((select count(*) from pg_index i where i.indrelid = s.oid) + 1) * current_setting('block_size')::int end, 0) order by s.slot) as bytes
      from (select substring(c.relname from '\.([0-9]+)$')::int as slot, c.oid from pg_inherits i join pg_class c on c.oid = i.inhrelid
             where i.inhparent = to_regclass({schema}._q(q.name))) s) s
 where s.slots is not null and ($1::text[] is null or q.name = any($1)) and has_function_privilege(to_regproc({schema}._q(format('_%s.cancel', q.name))), 'execute')
 order by q.name collate "C"
