-- Rows that are out of band, and the rate over about the last minute.
--   $1 subscription
select count(*) filter (where died_at is not null), count(*) filter (where died_at is null),
       count(distinct case when out_of_order then 's' || row_id else parked_key end) filter (where died_at is null or held),
       count(distinct parked_key) filter (where held),
       coalesce(greatest(extract(epoch from clock_timestamp() - min(failed_since) filter (where died_at is null)), 0), 0)::float8,
       (select coalesce(sum(w.rate), 0)::float8 from (
            select (max(settled) - min(settled)) / greatest(extract(epoch from max(at) - min(at)), 1) as rate
              from {schema}._adopt_log where subscription = $1 and at > clock_timestamp() - interval '1 minute'
             group by epoch, holder, since) w)
  from {schema}._adopt_row where subscription = $1
