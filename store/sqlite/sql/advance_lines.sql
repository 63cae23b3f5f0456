-- Lines of which messages came back: whoever is the head now is due at once.
update penstock_lines
   set head = (select min(p.seq) from penstock_parked p where p.line_id = penstock_lines.id),
       due = case when due is null then null else ?1 end
 where id in (select value from json_each(?2))
