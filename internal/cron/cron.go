// Package cron computes when a periodic job is due next. store/postgres has the same rules in SQL
// (schema/functions/schedules.sql): a job must run at the same times in every store.
package cron

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	_ "time/tzdata" // includes the zones, for machines without them

	"github.com/robfig/cron/v3"

	"github.com/penstock/penstock"
)

var (
	shortcuts = map[string]string{
		"@hourly": "0 * * * *", "@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@weekly": "0 0 * * 0",
		"@monthly": "0 0 1 * *", "@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *",
	}
	months   = []string{"jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"}
	days     = []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}
	inZone   = regexp.MustCompile(`^TZ=(\S+)(?:\s|$)`)
	zoneName = regexp.MustCompile(`^[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+)+$`)
	part     = regexp.MustCompile(`^(\*|([0-9]{1,2}|[a-z]{3})(?:-([0-9]{1,2}|[a-z]{3}))?)(?:/([0-9]{1,2}))?$`)
)

// star is the bit by which the library marks a field that does not restrict the day.
const star = 1 << 63

// Next returns the first time after the given one that spec describes, in UTC or in the zone that a TZ= before it
// names (TZ=Europe/Berlin 30 4 * * *). If the clocks skip a time, it comes later by the length of the shift. If they
// show it twice, the second counts. If the hour begins with *, both count. A spec has five fields, minute hour
// day-of-month month day-of-week, with *, lists, ranges, steps (5/20 is 5-59/20) and the names of months and days; 7
// is also a Sunday. Or it is @hourly, @daily (@midnight), @weekly, @monthly or @yearly (@annually). As in Vixie's
// cron, either day is enough unless one of the two fields begins with *, also as */2: then both must hold. The error
// is a *penstock.FieldError, also for times that never come, like the 30th of February.
func Next(spec string, after time.Time) (time.Time, error) {
	text, location := strings.TrimSpace(spec), time.UTC
	if zone := inZone.FindStringSubmatch(text); zone != nil {
		var err error
		if location, err = time.LoadLocation(zone[1]); err != nil || zone[1] != "UTC" && !zoneName.MatchString(zone[1]) {
			return time.Time{}, &penstock.FieldError{Field: fmt.Sprintf("cron %q", spec), Problem: fmt.Sprintf("has an unknown time zone %q", zone[1]),
				Hint: "use a name such as Europe/Berlin, as in TZ=Europe/Berlin 30 4 * * 1-5, or leave it out for UTC"}
		}
		text = strings.TrimSpace(text[len(zone[0]):])
	}
	if long, ok := shortcuts[strings.ToLower(text)]; ok {
		text = long
	}
	fields := strings.Fields(text)
	if len(fields) != 5 {
		return time.Time{}, bad(spec, fmt.Sprintf("makes no sense: five fields are needed, and it has %d", len(fields)))
	}
	s := cron.SpecSchedule{Second: 1, Location: time.UTC}
	for i, f := range []struct {
		bits   *uint64
		name   string
		lo, hi int
		names  []string
	}{
		{&s.Minute, "minute", 0, 59, nil}, {&s.Hour, "hour", 0, 23, nil},
		{&s.Dom, "day of month", 1, 31, nil}, {&s.Month, "month", 1, 12, months}, {&s.Dow, "day of week", 0, 7, days},
	} {
		var ok bool
		if *f.bits, ok = parse(fields[i], f.lo, f.hi, f.names); !ok {
			return time.Time{}, bad(spec, fmt.Sprintf("makes no sense: %q is not a valid %s", fields[i], f.name))
		}
	}
	s.Dow |= s.Dow >> 7 & 1
	if strings.HasPrefix(fields[2], "*") || strings.HasPrefix(fields[4], "*") {
		s.Dom |= star
	}
	next := shownNext(&s, after.UTC())
	if location != time.UTC {
		next = nextIn(location, &s, after, strings.HasPrefix(fields[1], "*"))
	}
	if !next.IsZero() {
		return next, nil
	}
	return time.Time{}, &penstock.FieldError{Field: fmt.Sprintf("cron %q", spec), Problem: "describes a time that never comes", Hint: "look at the day and the month"}
}

// Trust is how far a clock may be set back without a schedule running again for the same times, as with Vixie's cron.
const Trust = 3 * time.Hour

// Ahead reports whether a schedule with this next time has run for a time further ahead than Trust, because the clock was wrong
// then.
func Ahead(spec string, next, now time.Time) bool {
	first, err := Next(spec, now.Add(Trust))
	return err == nil && first.Before(next)
}

// shownNext is the next time without regard to zones, or zero if there is none. The library searches about five years
// ahead, and a leap day may be eight years away.
func shownNext(s *cron.SpecSchedule, after time.Time) time.Time {
	next := s.Next(after)
	if next.IsZero() {
		next = s.Next(after.AddDate(4, 0, 0))
	}
	return next
}

// change is more than any clock is ever moved.
const change = 3 * time.Hour

// nextIn goes through local times of a zone, and finds the earliest instant. Around a clock change, that need
// not be the first local time.
func nextIn(location *time.Location, s *cron.SpecSchedule, after time.Time, everyHour bool) (first time.Time) {
	for shown := shownNext(s, shownAt(after, location).Add(-change)); !shown.IsZero(); shown = shownNext(s, shown) {
		if !first.IsZero() && shown.Sub(shownAt(first, location)) > change {
			break
		}
		for _, at := range meant(shown, location, everyHour) {
			if at.After(after) && (first.IsZero() || at.Before(first)) {
				first = at
			}
		}
	}
	return first.UTC()
}

// shownAt is the local time of a zone, as if it were UTC.
func shownAt(at time.Time, location *time.Location) time.Time {
	_, offset := at.In(location).Zone()
	return at.UTC().Add(time.Duration(offset) * time.Second)
}

// meant returns the instants of a local time in a zone, as PostgreSQL has them. Of two instants it is the second,
// or both if both are requested. If the clocks skip the time, it is the instant by the clock before the change.
func meant(shown time.Time, location *time.Location, both bool) []time.Time {
	_, before := shown.Add(-24 * time.Hour).In(location).Zone()
	_, behind := shown.Add(24 * time.Hour).In(location).Zone()
	one, other := shown.Add(-time.Duration(before)*time.Second), shown.Add(-time.Duration(behind)*time.Second)
	switch {
	case !shownAt(other, location).Equal(shown):
		return []time.Time{one}
	case both && shownAt(one, location).Equal(shown):
		return []time.Time{one, other}
	}
	return []time.Time{other}
}

// parse returns a bit for each value that a field allows; names stand for lo, lo+1, ...
func parse(field string, lo, hi int, names []string) (bits uint64, ok bool) {
	value := func(s string) int {
		if n, err := strconv.Atoi(s); err == nil {
			return n
		}
		if i := slices.Index(names, s); i >= 0 {
			return lo + i
		}
		return -1
	}
	for p := range strings.SplitSeq(strings.ToLower(field), ",") {
		m := part.FindStringSubmatch(p)
		if m == nil {
			return 0, false
		}
		first, last, step := lo, hi, 1
		if m[1] != "*" {
			first = value(m[2])
			switch {
			case m[3] != "":
				last = value(m[3])
			case m[4] == "":
				last = first
			}
		}
		if m[4] != "" {
			step = value(m[4])
		}
		if first < lo || first > last || last > hi || step < 1 {
			return 0, false
		}
		for v := first; v <= last; v += step {
			bits |= 1 << v
		}
	}
	return bits, true
}

func bad(spec, problem string) error {
	return &penstock.FieldError{Field: fmt.Sprintf("cron %q", spec), Problem: problem,
		Hint: `give minute, hour, day of month, month and day of week, in UTC, like "30 4 * * 1-5", or @hourly, @daily, @weekly, @monthly, @yearly; there is no @every: every five minutes is "*/5 * * * *"`}
}
