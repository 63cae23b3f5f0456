-- The outboxes: what they retain, and the sizes of their segments, as queues.sql has those of queues.
select o.name, coalesce((extract(epoch from o.retain_age) * 1000000)::bigint, 0), coalesce(o.retain_bytes, 0),
       coalesce(pg_sequence_last_value(to_regclass({schema}._q(format('_%s.slot', o.name)))), 0), s.slots, s.bytes,
       coalesce(pg_sequence_last_value(to_regclass({schema}._q(format('_%s.seq', o.name)))), 0)
  from {schema}._outbox o
 cross join lateral (
    select array_agg(s.slot order by s.slot) as slots,
           array_agg(coalesce(case when pg_relation_size(s.oid) > 0 then pg_total_relation_size(s.oid)
                                   else ((select count(*) from pg_index i where i.indrelid = s.oid) + 1) * current_setting('block_size')::int end, 0) order by s.slot) as bytes
      from (select substring(c.relname from '\.([0-9]+)$')::int as slot, c.oid from pg_inherits i join pg_class c on c.oid = i.inhrelid
             where i.inhparent = to_regclass({schema}._q(o.name))) s) s
 where s.slots is not null
 order by o.name collate "C"
