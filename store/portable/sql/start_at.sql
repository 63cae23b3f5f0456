-- When the next job of what is limited may start, in nanoseconds. One that is due later than any rate can say is another clock's, or another rate's: one job may
-- start, and the rate counts from there.
case when coalesce(b.next, 0) > c.now + i.slack then c.now + i.slack - i.pace else greatest(coalesce(b.next, 0), c.now) end
