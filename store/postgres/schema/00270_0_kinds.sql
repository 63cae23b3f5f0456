-- The functions that enqueue by a queue's name, and those that schedule, also take a kind.

drop function if exists enqueue_bytes(text, bytea, text, text, int, timestamptz, text, jsonb);
drop function if exists enqueue(text, text, text, text, int, timestamptz, text, jsonb);
drop function if exists enqueue(text, jsonb, text, text, int, timestamptz, text, jsonb);
drop function if exists enqueue_many_bytes(text, bytea[], text[], text[], int[], timestamptz[], text[], jsonb[]);
drop function if exists enqueue_many(text, text[], text[], text[], int[], timestamptz[], text[], jsonb[]);
drop function if exists schedule_bytes(text, text, text, bytea, text, text, int, jsonb, text);
drop function if exists schedule(text, text, text, text, text, text, int, jsonb, text);
drop function if exists schedule(text, text, text, jsonb, text, text, int, jsonb, text);
