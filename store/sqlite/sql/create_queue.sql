-- The jobs of one queue. Producers give payload and, if they like, key, group_key,
-- priority, headers and not_before (milliseconds since 1970); the rest is the
-- database's to fill in. A job ends when its row is deleted.
create table {table} (
  seq        integer primary key autoincrement,
  id         integer, -- of a dead letter that came back; null: seq
  created_at integer not null default (cast(round((julianday('now') - 2440587.5) * 86400000.0) as integer))
    constraint "created_at must be left out, or be milliseconds since 1970"
    check (typeof(created_at) = 'integer'),
  not_before integer
    constraint "not_before must be milliseconds since 1970"
    check (typeof(not_before) in ('null', 'integer') and coalesce(not_before, 0) between 0 and 9000000000000000),
  priority   integer not null default 0
    constraint "priority must be a number from -16 to 15"
    check (typeof(priority) = 'integer' and priority between -16 and 15),
  group_key        text not null default ''
    constraint "group_key must be text of at most 256 bytes without NUL"
    check (typeof(group_key) = 'text' and length(cast(group_key as blob)) <= 256 and instr(cast(group_key as blob), x'00') = 0),
  key        text
    constraint "key must be text of at most 1024 bytes without NUL"
    check (typeof(key) in ('null', 'text') and length(cast(key as blob)) <= 1024 and instr(cast(key as blob), x'00') = 0),
  headers    text
    constraint "headers must be a JSON object of strings"
    check (json_type(headers) = 'object'),
  payload    blob not null
    constraint "payload must be at most 64 MiB"
    check (length(payload) <= 67108864)
);

create index {ids} on {table} (id) where id is not null;

create trigger {scheduled} after insert on {table} when new.not_before is not null
begin
  insert into penstock_scheduled (queue_id, seq, due) values ({queue}, new.seq, new.not_before * 1000);
end;

create trigger {ready} after insert on {table} when new.not_before is null and coalesce(new.key, '') = ''
begin
  insert into penstock_ready (queue_id, group_key, priority, rank) values ({queue}, new.group_key, new.priority, {sign}new.seq);
end;

create trigger {keyed} after insert on {table} when new.not_before is null and new.key <> ''
begin
  insert into penstock_keyed (queue_id, key, id, group_key, priority, rank)
  values ({queue}, new.key, coalesce(new.id, new.seq), new.group_key, new.priority, {sign}new.seq);
end;

-- In this order: what the key's next job needs is done last.
create trigger {ended} after delete on {table}
begin
  delete from penstock_ready where queue_id = {queue} and group_key = old.group_key and priority = old.priority and rank = {sign}old.seq;
  delete from penstock_scheduled where queue_id = {queue} and seq = old.seq;
  delete from penstock_leases where queue_id = {queue} and seq = old.seq;
  delete from penstock_histories where queue_id = {queue} and seq = old.seq;
  delete from penstock_keyed where queue_id = {queue} and key = old.key and id = coalesce(old.id, old.seq);
  delete from penstock_busy where queue_id = {queue} and key = old.key and seq = old.seq;
end;

create trigger {fixed} before update of seq, id, not_before, priority, group_key, key on {table}
begin
  select raise(abort, 'the place of a job in its queue does not change: delete it and insert another one');
end;
