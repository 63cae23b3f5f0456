-- The groups that have ready jobs, from one on, up to another (null: the last). From one to the next it goes by the
-- key, whatever number of jobs a group has.
with recursive g(grp) as (
  select (select min(r.grp) from penstock_ready r where r.queue_id = :queue and r.grp >= :from)
  union all
  select (select min(r.grp) from penstock_ready r where r.queue_id = :queue and r.grp > g.grp)
    from g
   where g.grp is not null and (:upto is null or g.grp < :upto)
)
select g.grp from g where g.grp is not null and (:upto is null or g.grp <= :upto) limit :most
