-- Barriers that are not open yet, and how many jobs hold them: those that have not ended, and dead letters. A number that was given and is not here is open.
create table penstock_barriers (
  barrier  integer primary key autoincrement,
  queue_id integer not null,
  sealed   integer not null default 0,
  running  integer not null default 0,
  dead     integer not null default 0
);
create index penstock_barriers_dead on penstock_barriers (queue_id) where dead > 0;
-- Which jobs wait for them. Such a job is also in penstock_scheduled, due at 9e18.
create table penstock_waits (
  barrier  integer not null,
  on_dead  text    not null,
  seq      integer not null,
  queue_id integer not null,
  primary key (barrier, on_dead, seq)
) without rowid;
create index penstock_waits_of on penstock_waits (queue_id, seq);

-- The last job that holds a barrier has ended, or it was sealed: the jobs that wait for nothing else are due. If none of its jobs is dead it is open, and
-- goes.
create trigger penstock_barriers_counted after update on penstock_barriers when new.sealed and new.running <= 0
begin
  update penstock_scheduled set due = 0
   where queue_id = new.queue_id and due = 9000000000000000000
     and seq in (select w.seq from penstock_waits w
                  where w.barrier = new.barrier
                    and not exists (select 1 from penstock_waits o cross join penstock_barriers b on b.barrier = o.barrier
                                     where o.queue_id = w.queue_id and o.seq = w.seq
                                       and not (b.sealed and b.running <= 0 and (b.dead <= 0 or o.on_dead = 'run'))));
  delete from penstock_waits where barrier = new.barrier and new.dead <= 0;
  delete from penstock_barriers where barrier = new.barrier and new.dead <= 0;
end;

-- Dead letters. A job becomes one before its row goes, and comes back before its letter goes, so that a barrier does not open in between.
create trigger penstock_barriers_dead_more after insert on penstock_dead_jobs when new.headers like '%"penstock-holds"%'
begin
  update penstock_barriers set dead = dead + 1 where barrier = cast(json_extract(new.headers, '$."penstock-holds"') as integer) and queue_id = new.queue_id;
end;
create trigger penstock_barriers_dead_less after delete on penstock_dead_jobs when old.headers like '%"penstock-holds"%'
begin
  update penstock_barriers set dead = dead - 1 where barrier = cast(json_extract(old.headers, '$."penstock-holds"') as integer) and queue_id = old.queue_id;
end;
