-- The groups that have ready jobs, from one on, up to another (null: the last). From one to the next it goes by the
-- key, whatever number of jobs a group has.
with recursive g(group_key) as (
  select (select min(r.group_key) from penstock_ready r where r.queue_id = :queue and r.group_key >= :from)
  union all
  select (select min(r.group_key) from penstock_ready r where r.queue_id = :queue and r.group_key > g.group_key)
    from g
   where g.group_key is not null and (:upto is null or g.group_key < :upto)
)
select g.group_key from g where g.group_key is not null and (:upto is null or g.group_key <= :upto) limit :most
