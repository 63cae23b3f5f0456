-- The first of these files: those that follow write templates, of which _define and _define_inbox make the functions of each
-- queue and inbox.

delete from _template;

-- _qualified qualifies the operators and functions in the text of a function, so that it may run with its owner's
-- rights on its caller's search_path. Names are put in afterwards. Qualified operators all bind alike, from left to
-- right: brackets give the rest.
create or replace function _qualified(body text) returns text
language sql immutable set search_path from current as $$
    select regexp_replace(regexp_replace(body,
        $re$ (<=|>=|<|>|=|\+|-|\*|%) $re$, $re$ operator(pg_catalog.\1) $re$, 'g'),
        $re$\m(pg_sequence_last_value|nextval|setval|date_part|clock_timestamp|current_setting)\($re$, $re$pg_catalog.\1($re$, 'g') $$;
