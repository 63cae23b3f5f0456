select quote_ident(a.attname), format_type(a.atttypid, a.atttypmod)
  from pg_dist_partition d
  join pg_attribute a on a.attrelid = d.logicalrelid and a.attname = column_to_column_name(d.logicalrelid, d.partkey)
 where d.logicalrelid = to_regclass({relation}) and d.partmethod = 'h'
