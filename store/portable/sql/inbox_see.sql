-- Those of some ids that are new are noted and returned. Who else notes one of them now is waited for.
insert into {schema}.received (inbox_id, id, at)
select i.id, d.id, clock_timestamp()
  from {schema}.inboxes i cross join unnest({ids}::text[]) d(id)
 where i.consumer = {consumer} and {wait} <= i.keep / 2 -- else the message is refused
 order by d.id
    on conflict (inbox_id, id) do nothing
returning id
