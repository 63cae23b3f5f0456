-- _part has one argument more.
drop function if exists _part(integer, bigint[]);
