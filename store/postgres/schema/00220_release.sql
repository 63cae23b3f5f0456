-- A release takes a time now.
drop function if exists release(text, bigint), release_many(text, bigint[]);
