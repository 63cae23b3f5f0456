-- The parked keys of parked messages that are due, in order, and the messages to try of
-- each: the head alone if it has been refused, else what follows too.
--   $1 subscription
--   $2 due, $3 n   of the last parked key that was read
--   $4 limit of rows, $5 of messages per parked key
-- A row without a message is a parked key's past state; if it has a head, the message is gone. Rows come
-- in the order of parked keys because a lateral join with a limit can only be nested loops.
select m.seq, m.created_at, m.id, m.key, m.topic, m.headers, m.payload,
       l.parked_key, l.n, m.p, l.due, l.attempt, l.failures, (extract(epoch from l.failed_since) * 1000000)::bigint, l.head
  from (select c.parked_key, c.n, c.due, c.attempt, c.failures, c.failed_since,
               case when not exists (select from {schema}._parked_key x
                                      where x.subscription = $1::bigint and x.parked_key = c.parked_key and x.n > c.n) then c.head end as head
          from {schema}._parked_key c
         where c.subscription = $1::bigint and (c.due, c.n) > ($2::timestamptz, $3::bigint)
           and c.due <= statement_timestamp() and c.head is not null
         order by c.due, c.n limit $4::bigint) l
  left join lateral (
        select * from {schema}._parked p
         where p.subscription = $1::bigint and p.parked_key = l.parked_key and p.p >= l.head
         order by p.p limit case when l.attempt > 0 then 1 else $5::bigint end) m on true
 limit $4::bigint
