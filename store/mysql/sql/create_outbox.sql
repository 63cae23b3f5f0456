-- Producers give key, topic, headers and payload, and an id if they have one. The
-- bucket follows from the key, so that one key is in one bucket.
create table if not exists {table} (
  seq bigint not null auto_increment primary key,
  id varbinary(256),
  `key` varbinary(1024),
  topic varbinary(1024) not null default '',
  headers mediumblob,
  payload longblob not null,
  ts datetime(6) not null default ({now}),
  bucket smallint not null default (case when `key` is null or `key` = '' then floor(rand() * {buckets}) else crc32(`key`) % {buckets} end),
  key bucket (bucket, ts, seq),
  constraint headers_{unique} {valid_headers}
) {engine}
