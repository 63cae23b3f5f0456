-- How long done jobs took, see _sample_queue.

alter table _sample add column done jsonb;
drop function if exists _turn_samples();
