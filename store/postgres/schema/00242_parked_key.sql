-- What names a parked key is called so.
alter table _parked rename column line to parked_key;
alter table _parked_key rename column line to parked_key;
alter table _retry rename column line to parked_key;
alter table _adopt_row rename column line to parked_key;
do $$
declare
    index text;
begin
    for index in select relname from pg_class where relnamespace = quote_ident(current_schema())::regnamespace and relkind in ('i', 'I')
                    and relname ~ $re$^_(parked|parked_key|retry|adopt_row)(_[01])?_subscription_line(_|\Z)$re$ loop
        execute format('alter index %I rename to %I', index, replace(index, '_subscription_line', '_subscription_parked_key'));
    end loop;
    if to_regprocedure('_adopt_release(bigint, text[])') is not null then -- its argument is renamed; define.sql grants the new one to whom the old one was
        alter function _adopt_release(bigint, text[]) rename to "~_adopt_release";
    end if;
end $$;
