-- What counts the running jobs leaves out those that the same call ends, returns those that are left, and says when a limit is close.

drop function if exists _admit(int, text, int, bigint[]);
drop function if exists _admitted(int, text, bigint[], boolean);
drop function if exists _count_listed(int, bigint[], bigint[]);
drop function if exists _running(int);
