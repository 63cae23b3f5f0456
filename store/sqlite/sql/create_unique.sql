-- The first unique job of a queue makes this: its jobs pay for it from then on.
create index if not exists {unique} on {table} (key) where json_extract(headers, '$."penstock-unique-key"') is not null;
