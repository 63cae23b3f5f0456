-- It takes one argument more.
drop function if exists _count_groups(int, text, int);
