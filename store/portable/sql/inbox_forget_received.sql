-- A few ids that are out of their window, from a time on, which passes over those that were deleted before. Ids of held
-- messages stay known. Who else forgets some of them is not waited for.
delete from {schema}.received r
 using (select o.inbox_id, o.id
          from {schema}.received o
          join {schema}.inboxes i on i.id = o.inbox_id
         where i.consumer = {consumer} and o.at >= {from} and o.at < (select clock_timestamp()) - i.keep * interval '1 microsecond'
           and not exists (select from {schema}.held h where h.inbox_id = o.inbox_id and h.id = o.id)
         order by o.at
         limit {most}
           for update of o skip locked) old
 where r.inbox_id = old.inbox_id and r.id = old.id
returning r.at
