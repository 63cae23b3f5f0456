-- All derived ids have a time since before the first release.
alter table _outbox drop column plain_ids;
