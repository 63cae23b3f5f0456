// Package cron says when a periodic job is due next, by the rules that
// store/postgres has in SQL (00020_schedules.sql): a job must run at the same
// times whichever store it is in.
package cron

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/penstock/penstock"
)

var (
	shortcuts = map[string]string{
		"@hourly": "0 * * * *", "@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@weekly": "0 0 * * 0",
		"@monthly": "0 0 1 * *", "@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *",
	}
	months = []string{"jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"}
	days   = []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}
	part   = regexp.MustCompile(`^(\*|([0-9]{1,2}|[a-z]{3})(?:-([0-9]{1,2}|[a-z]{3}))?)(?:/([0-9]{1,2}))?$`)
)

// star is the bit by which the library knows a field that does not restrict the day.
const star = 1 << 63

// Next returns the first time after the given one that spec describes, in UTC.
// A spec has five fields, minute hour day-of-month month day-of-week, with *,
// lists, ranges, steps (5/20 is 5-59/20) and the names of months and days; 7 is a
// Sunday, too. Or it is @hourly, @daily (@midnight), @weekly, @monthly or @yearly
// (@annually). As in Vixie's cron, either day is enough unless one of the two
// fields begins with *, also as */2: then both must hold. The error is a
// *penstock.FieldError, also for times that never come, like the 30th of February.
func Next(spec string, after time.Time) (time.Time, error) {
	text := spec
	if long, ok := shortcuts[strings.ToLower(strings.TrimSpace(spec))]; ok {
		text = long
	}
	fields := strings.Fields(text)
	if len(fields) != 5 {
		return time.Time{}, bad(spec, "makes no sense: it has not five fields")
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
			return time.Time{}, bad(spec, fmt.Sprintf("makes no sense: %q is no %s", fields[i], f.name))
		}
	}
	s.Dow |= s.Dow >> 7 & 1
	if strings.HasPrefix(fields[2], "*") || strings.HasPrefix(fields[4], "*") {
		s.Dom |= star
	}
	// The library looks about five years ahead, and a leap day may be eight away.
	for _, from := range []time.Time{after.UTC(), after.UTC().AddDate(4, 0, 0)} {
		if next := s.Next(from); !next.IsZero() {
			return next, nil
		}
	}
	return time.Time{}, &penstock.FieldError{Field: fmt.Sprintf("cron %q", spec), Problem: "describes a time that never comes", Hint: "look at the day and the month"}
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
		Hint: `give minute, hour, day of month, month and day of week, in UTC, like "30 4 * * 1-5", or @hourly, @daily, @weekly, @monthly, @yearly`}
}
