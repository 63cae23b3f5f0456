-- Producers give key, topic, headers and payload, and an id if they have one.
create table if not exists {table} (
  seq bigint not null auto_increment primary key,
  id varbinary(256),
  `key` varbinary(1024),
  topic varbinary(1024) not null default '',
  headers mediumblob,
  payload longblob not null,
  ts datetime(6) not null default ({now}),
  key place (ts, seq),
  constraint headers_{unique} {valid_headers}
) {engine}
