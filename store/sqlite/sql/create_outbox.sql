-- The messages of one outbox. Producers give key, topic, headers and payload,
-- and an id if they have one; seq and created_at are the database's to fill in.
-- AUTOINCREMENT: a seq that was deleted never comes again, because cursors
-- compare with it. (No placeholder in a comment: a name may hold a newline.)
create table {table} (
  seq        integer primary key autoincrement,
  created_at integer not null default (cast(round((julianday('now') - 2440587.5) * 86400000.0) as integer))
    constraint "created_at must be left out, or be milliseconds since 1970"
    check (typeof(created_at) = 'integer'),
  id         text
    constraint "id must be at most 256 bytes without NUL"
    check (length(cast(id as blob)) <= 256 and instr(cast(id as blob), x'00') = 0),
  key        text
    constraint "key must be at most 1024 bytes without NUL"
    check (length(cast(key as blob)) <= 1024 and instr(cast(key as blob), x'00') = 0),
  topic      text not null default ''
    constraint "topic must be at most 1024 bytes without NUL"
    check (length(cast(topic as blob)) <= 1024 and instr(cast(topic as blob), x'00') = 0),
  headers    text
    constraint "headers must be a JSON object of strings"
    check (json_type(headers) = 'object'),
  payload    blob not null
    constraint "payload must be at most 64 MiB"
    check (length(payload) <= 67108864)
)
