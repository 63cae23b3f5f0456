-- Whether there is something to reclaim in the ring of parked messages. It reads the last state of
-- a parked key, and the size of the states, of the messages and of the sealed segments.
select coalesce(pg_sequence_last_value('{schema}._parked_key_n'), 0),
       coalesce(sum(pg_relation_size(c.oid)) filter (where c.relname like '\_parked\_key%'), 0)::bigint,
       coalesce(sum(case when pg_relation_size(c.oid) > 0 then pg_table_size(c.oid) end) filter (where c.relname not like '\_parked\_key%'), 0)::bigint,
       coalesce(sum(pg_relation_size(c.oid)) filter (where substring(c.relname from '.$')::int <>
           case when c.relname like '\_parked\_key%' then pg_sequence_last_value('{schema}._parked_key_slot') else pg_sequence_last_value('{schema}._parked_slot') end), 0)::bigint
  from pg_class c
 where c.oid in ('{schema}._parked_key_0'::regclass, '{schema}._parked_key_1'::regclass, '{schema}._parked_0'::regclass, '{schema}._parked_1'::regclass)
