-- bury is called dead_letter now, as the clients call it.
drop function if exists bury(text, bigint, text);
