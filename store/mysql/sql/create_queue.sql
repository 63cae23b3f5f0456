-- Producers give payload and, if they like, group_key, priority, not_before, key and headers. ts is the place
-- of a job in its group, behind {sign}priority. A job ends when its row is deleted.
create table if not exists {jobs} (
  seq bigint not null auto_increment primary key,
  group_key varbinary(256) not null default '',
  priority tinyint not null default 0,
  created_at datetime(6) not null default ({now}),
  not_before datetime(6),
  `key` varbinary(1024),
  headers mediumblob,
  payload longblob not null,
  place tinyint not null default ({sign}priority),
  ts datetime(6) not null default (greatest(created_at, coalesce(not_before, created_at))),
  key claims (group_key, place, ts, seq),
  key of_key (`key`, ts, seq),
  constraint priority_{unique} check (priority between -16 and 15),
  constraint headers_{unique} {valid_headers}
) {engine}
