-- +goose Up

-- Up to which seq derived message ids are <uid>-<seq>. Later ones say when the message was
-- written, too, because a seq comes again where an older copy of the file is restored; what is
-- there keeps its id.
alter table penstock_outboxes add column plain_ids integer not null default 0;

-- An outbox whose name has capitals, or a ~, has a table whose name ends in ~ and one more word.
update penstock_outboxes set plain_ids = coalesce((
  select max(s.seq)
    from sqlite_sequence s, (select 'penstock_outbox_' || penstock_outboxes.name as plain, penstock_outboxes.name as name) t
   where case when t.name = lower(t.name) and instr(t.name, '~') = 0 then s.name = t.plain
              else substr(s.name, 1, length(t.plain) + 1) = t.plain || '~' and instr(substr(s.name, length(t.plain) + 2), '~') = 0 end), 0);

-- +goose Down
alter table penstock_outboxes drop column plain_ids;
