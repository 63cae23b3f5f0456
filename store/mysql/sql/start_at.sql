-- When the next job of what is limited may start, in nanoseconds. If it were due more than per later, that is by another clock, or another rate: one job may
-- start, and the rate counts from there.
case when coalesce(b.next, 0) > ({clock_micros} * 1000) + i.slack - i.pace + i.per + 1000000 then ({clock_micros} * 1000) + i.slack - i.pace else greatest(coalesce(b.next, 0), ({clock_micros} * 1000)) end
