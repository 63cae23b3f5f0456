-- How many jobs of a queue are where. It reads the queue's own segments once, and of
-- the rings that it shares only its own part. $1 is its id.
--
-- Of a key one job may run, unless one runs already, or an earlier one waits to be
-- tried again; the others wait for it. What is due, but was not moved yet, is ready.
with line as (
    select t.key, count(*) as n, min(coalesce(t.id, t.seq)) as head, min(t.created_at) as oldest
      from {queue} t group by t.key),
ring as (
    select l.n, l.oldest, case
               when l.key is null then l.n
               when exists (select from {schema}._lease e where e.queue = $1 and e.key = l.key)
                 or exists (select from {schema}._later w where w.queue = $1 and w.key = l.key and w.id < l.head) then 0
               else 1 end as may
      from line l),
later as (
    select count(*) filter (where w.due <= clock_timestamp()) as ready,
           count(*) filter (where w.due > clock_timestamp() and w.due < 'infinity') as delayed,
           count(*) filter (where w.due = 'infinity') as waiting,
           min(w.created_at) filter (where w.due <= clock_timestamp()) as oldest
      from {schema}._later w where w.queue = $1)
select coalesce((select sum(r.may) from ring r), 0)::bigint + l.ready,
       (select count(*) from {schema}._lease e where e.queue = $1),
       l.delayed,
       coalesce((select sum(r.n - r.may) from ring r), 0)::bigint + l.waiting,
       (select count(*) from {schema}._dead_job d where d.queue = $1),
       greatest(0, coalesce(extract(epoch from clock_timestamp() - least(l.oldest, (select min(r.oldest) from ring r where r.may > 0))), 0))::float8
  from later l
