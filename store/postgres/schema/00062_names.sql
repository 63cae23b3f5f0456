-- Text is not read as the text form of bytea, and an array is not taken for a number: functions of
-- bytes and of several have names of their own.
do $$ begin
    if to_regprocedure(format('%I.publish(text, bytea, text, text, jsonb, text)', current_schema())) is not null then -- its grants stay
        alter function publish(text, bytea, text, text, jsonb, text) rename to publish_bytes;
    end if;
end $$;

drop function if exists enqueue(text, bytea, text, text, int, timestamptz, text, jsonb);

drop function if exists enqueue_many(text, bytea[], text[], text[], int[], timestamptz[], text[], jsonb[]);

drop function if exists schedule(text, text, text, bytea, text, text, int, jsonb, text);

drop function if exists inbox_in_order(text, text, text, text, jsonb, bytea, interval);

drop function if exists ack(text, bigint[]);

drop function if exists release(text, bigint[]);

drop function if exists extend(text, bigint[], interval);
