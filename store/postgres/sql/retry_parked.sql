-- Asks whoever has the lease to try lines at once that wait for another attempt, and counts them.
--   $1 subscription, $2 lines, {""} for all
with waiting as materialized (
    select l.n from {schema}._parked_key l
     where l.subscription = $1::bigint and l.head is not null and l.due > clock_timestamp() and l.due < 'infinity'
       and ($2::text[] = '{""}' or l.line = any ($2::text[]))
       and not exists (select from {schema}._parked_key x where x.subscription = $1::bigint and x.line = l.line and x.n > l.n)
), asked as (
    insert into {schema}._retry as r (subscription, line, n)
    select distinct on (a.line) $1::bigint, a.line, (select max(w.n) from waiting w) from unnest($2::text[]) a(line) where exists (select from waiting)
        on conflict (subscription, line) do update set n = greatest(r.n, excluded.n)
)
select count(*) from waiting
