-- The ids of $2 that are new are noted and returned. Who else notes one of them now is waited for.
insert into {schema}.received (inbox_id, id, at)
select i.id, d.id, clock_timestamp()
  from {schema}.inboxes i cross join unnest($2::text[]) d(id)
 where i.consumer = $1
 order by d.id
    on conflict (inbox_id, id) do nothing
returning id
