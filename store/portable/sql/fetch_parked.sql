-- Heads that are due, none of them before {since}, and behind a head that was never refused what follows it.
with due as (
  select h.seq, h.parked_key, h.ts, h.due, h.attempts
    from {schema}.entries h
   where h.subscription_id - 0 = {sub} and h.head and h.due > {since} and h.due <= (select clock_timestamp()) and h.bucket = any ({reads}::smallint[])
     and h.seq <> all ({in_flight}::bigint[]) and (h.parked_key is null or h.parked_key <> all ({in_flight_keys}::text[]))
     and not (h.parked_key is not null and exists (select from {schema}.entries w where w.subscription_id - 0 = {sub} and w.hold = h.parked_key))
     and exists (select from {lease})
   order by h.due, h.seq
   limit {most}
), page as (
  select h.due as head_due, h.seq as head_seq, e.*
    from due h
    cross join lateral (
      select r.* from {schema}.entries r
       where r.subscription_id = {sub} and r.seq = h.seq
      union all
      (select r.* from {schema}.entries r
        where r.subscription_id - 0 = {sub} and r.parked_key = h.parked_key and h.attempts = 0 and (r.ts, r.seq) > (h.ts, h.seq)
        order by r.ts, r.seq
        limit {most})) e
   order by h.due, h.seq, e.ts, e.seq
   limit {most}
)
select p.bucket, p.ts, p.seq, coalesce(t.id, ''), p.key, t.topic, t.headers, t.payload, p.parked_key is not null, p.head_seq, p.attempts, p.since, p.failures{more_row}
  from page p
  join {table} t on {same_p}
 order by p.head_due, p.head_seq, p.ts, p.seq
