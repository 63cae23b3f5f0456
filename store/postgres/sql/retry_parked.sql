-- Asks the holder of the lease to try parked keys at once that wait for another attempt, and counts them.
--   $1 subscription, $2 parked keys, {""} for all
with waiting as materialized (
    select l.n from {schema}._parked_key l
     where l.subscription = $1::bigint and l.head is not null and l.due > clock_timestamp() and l.due < 'infinity'
       and ($2::text[] = '{""}' or l.parked_key = any ($2::text[]))
       and l.n = (select max(x.n) from {schema}._parked_key x where x.subscription = $1::bigint and x.parked_key = l.parked_key)
), asked as (
    insert into {schema}._retry as r (subscription, parked_key, n)
    select distinct on (a.parked_key) $1::bigint, a.parked_key, (select max(w.n) from waiting w) from unnest($2::text[]) a(parked_key) where exists (select from waiting)
        on conflict (subscription, parked_key) do update set n = greatest(r.n, excluded.n) where r.reason is null
)
select count(*) from waiting
