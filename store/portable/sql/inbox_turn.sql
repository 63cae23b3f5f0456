-- Messages of a key take turns.
select t.turn
  from {schema}.turns t
  join {schema}.inboxes i on i.id = t.inbox_id
 where i.consumer = $1 and t.turn = $2
   for update of t
