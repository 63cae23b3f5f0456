-- Messages of a key take turns.
select t.turn
  from {schema}.turns t
  join {schema}.inboxes i on i.id = t.inbox_id
 where i.consumer = {consumer} and t.turn = {turn}
   for update of t
