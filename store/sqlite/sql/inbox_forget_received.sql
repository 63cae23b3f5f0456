-- A few ids that are out of their window. Ids of held messages stay known.
delete from {schema}.received
 where inbox_id = {inbox}
   and id in (select r.id from {schema}.received r
               where r.inbox_id = {inbox} and r.at >= {from} and r.at < {clock} - (select keep from {schema}.inboxes where id = {inbox})
                 and not exists (select 1 from {schema}.held h where h.inbox_id = {inbox} and h.id = r.id)
               order by r.at limit {most})
returning at
