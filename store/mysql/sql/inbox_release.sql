-- They become due in the order in which they would be; what is due already stays so.
update {schema}.held h
  join (select c.id, row_number() over (order by c.due, c.at, c.id) as place
          from {schema}.held c
         where c.inbox_id = {inbox} and ({key} = '' or c.`key` = {key}) and ({previous} = '' or c.previous = {previous}) and ({id} = '' or c.id = {id})) o
    on h.inbox_id = {inbox} and h.id = o.id
   set h.due = least(h.due, utc_timestamp(6) + interval o.place microsecond)
