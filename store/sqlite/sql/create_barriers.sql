-- The first barrier of a queue makes these: its jobs pay for them from then on.
create trigger if not exists {holds} after insert on {table} when json_extract(new.headers, '$."penstock-holds"') is not null
begin
  select raise(abort, 'the barrier that the job holds is open, or not one of the queue: make one with Barrier, and seal it after its last job')
   where not exists (select 1 from penstock_barriers b
                      where b.barrier = cast(json_extract(new.headers, '$."penstock-holds"') as integer) and b.queue_id = {queue});
  update penstock_barriers set running = running + 1 where barrier = cast(json_extract(new.headers, '$."penstock-holds"') as integer);
end;

create trigger if not exists {held} after delete on {table}
begin
  delete from penstock_waits where queue_id = {queue} and seq = old.seq;
  update penstock_barriers set running = running - 1
   where barrier = cast(json_extract(old.headers, '$."penstock-holds"') as integer) and queue_id = {queue};
end;
