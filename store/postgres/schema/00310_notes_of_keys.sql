-- Where to begin with a key: a job that comes back leaves no row any more, and the register of skip maps counts turns, see functions/keys.sql.

drop function if exists _came_back(integer, text[], bigint[]);
drop function if exists _only_skip_maps();
drop function if exists _beginning_of(integer, text, bigint);
drop function if exists _note_keys(integer, text, integer, smallint, bigint, pg_snapshot, text[], bigint[]);

alter sequence _skip_map_slot maxvalue 9223372036854775807;
alter table _skip_map alter column slot set default (pg_sequence_last_value('_skip_map_slot') % 2)::smallint;
