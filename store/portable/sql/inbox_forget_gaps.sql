delete from {schema}.gaps g
 using (select o.inbox_id, o.id
          from {schema}.gaps o
          join {schema}.inboxes i on i.id = o.inbox_id
         where i.id = {inbox} and o.at < (select clock_timestamp()) - i.keep * interval '1 microsecond'
         order by o.at
         limit {most}
           for update of o skip locked) old
 where g.inbox_id = old.inbox_id and g.id = old.id
returning g.at
