-- They become due in the order in which they would be; what is due already stays so.
update {schema}.held h
   set due = least(h.due, clock_timestamp() + o.place * interval '1 microsecond')
  from (select c.id, row_number() over (order by c.due, c.at, c.id) as place
          from {schema}.held c
         where c.inbox_id = {inbox} and ({key} = '' or c.key = {key}) and ({previous} = '' or c.previous = {previous}) and ({id} = '' or c.id = {id})) o
 where h.inbox_id = {inbox} and h.id = o.id
