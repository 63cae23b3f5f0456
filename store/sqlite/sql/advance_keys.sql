-- Parked keys of which messages came back: where there is another head now, it is due at
-- once.
update penstock_lines
   set head = first.seq,
       due = case when penstock_lines.due is null or penstock_lines.head = first.seq then penstock_lines.due else ?1 end
  from (select j.value as line, (select min(p.seq) from penstock_parked p where p.line_id = j.value) as seq from json_each(?2) j) first
 where penstock_lines.id = first.line
