-- A barrier has one count, of all jobs that hold it, see functions/barriers.sql. It was in 16 parts, and in rows of several.

lock table _barrier in access exclusive mode;

insert into _barrier (barrier, queue, part, running, dead)
select s.barrier, s.queue, 0, sum(case when a.n > coalesce(c.n, 0) then a.parts[p + 1] else c.running end), sum(c.dead)
  from (select distinct on (x.barrier) x.* from _barrier x where x.part = 16 order by x.barrier, x.n desc) s cross join generate_series(0, 15) p
  left join lateral (select x.* from _barrier x where x.barrier = s.barrier and x.part = p order by x.n desc limit 1) c on true
  left join lateral (select x.* from _barrier x where x.barrier = s.barrier and x.part = 18 order by x.n desc limit 1) a on true
 where s.running < 2 group by s.barrier, s.queue;

delete from _barrier where part between 1 and 15 or part in (18, -19);

alter table _barrier drop column parts;

drop function if exists _count_holders(integer, bigint[], jsonb[], integer, integer);
drop function if exists _barrier_state(bigint);
drop function if exists _barrier_lock(bigint, integer);
