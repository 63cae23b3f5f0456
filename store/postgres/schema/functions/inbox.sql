-- Inboxes: the messages that a consumer has received already, and, per key, those that came early.
-- docs/guides/inbox.md and sink/previous/DESIGN.md explain these functions and why they are exact.
--
-- Each consumer has separate rings, four segments each of ids, of held messages, of the heads of
-- keys and of gaps, which turn together. It also has its own functions, see _define_inbox. Their
-- names begin with two underscores, which nothing that belongs to an outbox or a queue does.
--
-- The register ring holds turn * 2 + moving. Turn t writes to the slot t % 4. While
-- it is moving, turn - 1 still decides what is new, together with turn; live are the
-- turns down to turn - 3. Once no transaction is left that knows only turn - 1, turn has settled,
-- alone decides, and turn - 3 is out of its window: live are three turns.

-- _refuse_inboxed raises an error that names the invalid field of a message, for its consumer.
create or replace function _refuse_inboxed(message_id text, previous_id text, key text, headers jsonb, payload bytea) returns void
language plpgsql volatile set search_path from current as $$ begin
    if message_id is null or message_id = '' then
        raise exception 'the message has no id' using errcode = '22023', hint = 'pass the id that the message carries, for example AMQP message-id';
    elsif octet_length(message_id) > 256 then
        raise exception 'the message id has % bytes, the limit is 256', octet_length(message_id) using errcode = '23514', hint = 'use a hash of it';
    elsif octet_length(previous_id) > 256 then
        raise exception 'the previous id has % bytes, the limit is 256', octet_length(previous_id) using errcode = '23514', hint = 'pass the header penstock-previous as it came';
    elsif previous_id = message_id then
        raise exception 'message % is its own predecessor', quote_literal(message_id) using errcode = '22023', hint = 'pass the header penstock-previous, or null without one';
    elsif octet_length(key) > 1024 then
        raise exception 'the key has % bytes, the limit is 1024', octet_length(key) using errcode = '23514', hint = 'use a hash of it';
    elsif payload is null then
        raise exception 'the payload is null' using errcode = '22023', hint = 'use an empty payload if the message has none';
    elsif octet_length(payload) > 67108864 then
        raise exception 'the payload has % bytes, the limit is 67108864', octet_length(payload) using errcode = '23514', hint = 'hold a reference to it';
    elsif jsonb_typeof(headers) <> 'object' then
        raise exception 'the headers are a JSON %, expected an object', jsonb_typeof(headers) using errcode = '23514', hint = 'for example {"trace": "4bf92f35"}';
    end if;
end $$;

-- _check_keep raises an error for a time that an inbox cannot keep ids.
create or replace function _check_keep(keep interval) returns void
language plpgsql set search_path from current as $$ begin
    if (keep between interval '1 minute' and interval '10 years') is not true then
        raise exception 'keep is %, expected 1 minute to 10 years', coalesce(keep::text, 'null')
        using errcode = '22023', hint = 'give the longest time after which a message may come again, for example interval ''7 days''';
    end if;
end $$;
