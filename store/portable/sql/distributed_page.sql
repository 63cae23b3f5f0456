-- Which messages come first, of the first of each shard. It has no subquery: Citus would send its result to every worker before.
select t.ts, t.seq, t.{tenant}::text, octet_length(t.payload) + 160
  from {table} t
 where t.bucket = any ({reads}::smallint[]) and {beyond} and {landed} and t.seq <> all ({known}::bigint[])
 order by t.ts, t.seq
 limit {most}
