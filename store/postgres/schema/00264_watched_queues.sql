-- See _watch, which follows it.
drop function if exists _set_flags(int);
