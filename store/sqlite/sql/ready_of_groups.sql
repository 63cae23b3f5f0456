-- Those of some groups that have ready jobs: first the ones behind a group.
select g.value
  from json_each(:groups) g
 where exists (select 1 from penstock_ready r where r.queue_id = :queue and r.group_key = g.value)
 order by g.value <= :behind, g.value
 limit :most
