-- When the next job of what is limited may start, in nanoseconds. One that is due later than any rate can say is another clock's, or another rate's: one job may
-- start, and the rate counts from there.
case when coalesce(b.next, 0) > ({clock_micros} * 1000) + i.slack then ({clock_micros} * 1000) + i.slack - i.pace else greatest(coalesce(b.next, 0), ({clock_micros} * 1000)) end
