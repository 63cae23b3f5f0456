-- Its caller said whose flags it sets. Each queue has a function of its own for that.
drop function if exists _admit_other_job(regclass, smallint, text, text, jsonb, bytea);
