-- What _operate alone called is in it now.
drop function if exists _retry_dead(int, bigint[]), _discard_dead(int, bigint[]);
