delete from {schema}.key_heads k
 using (select o.inbox_id, o.key
          from {schema}.key_heads o
          join {schema}.inboxes i on i.id = o.inbox_id
         where i.id = {inbox} and o.at < (select clock_timestamp()) - i.keep * interval '1 microsecond'
         order by o.at
         limit {most}
           for update of o skip locked) old
 where k.inbox_id = old.inbox_id and k.key = old.key
returning k.at
