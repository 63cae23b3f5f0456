-- They become due in the order in which they would be; what is due already stays so.
update {schema}.held set due = min(due, {clock} + o.place)
  from (select h.n as held, row_number() over (order by h.due, h.n) as place
          from {schema}.held h
         where h.inbox_id = {inbox} and ({key} = '' or h.key = {key}) and ({previous} = '' or h.previous = {previous}) and ({id} = '' or h.id = {id})) o
 where n = o.held
