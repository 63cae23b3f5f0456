-- The row before the last. By its number, so that where a snapshot keeps what was deleted no more of it is read.
delete from {schema}.group_starts where queue_id = {queue} and group_key = {group} and whole = {whole}
   and n = (select max(s.n) - 1 from {schema}.group_starts s where s.queue_id = {queue} and s.group_key = {group} and s.whole = {whole})
