-- They become due in the order in which they would be; what is due already stays so.
update {schema}.held h
   set due = least(h.due, clock_timestamp() + o.place * interval '1 microsecond')
  from (select c.id, row_number() over (order by c.due, c.at, c.id) as place
          from {schema}.held c
         where c.inbox_id = $1 and ($2 = '' or c.key = $2) and ($3 = '' or c.previous = $3) and ($4 = '' or c.id = $4)) o
 where h.inbox_id = $1 and h.id = o.id
