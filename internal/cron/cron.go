// Package cron says when a periodic job is due next.
package cron

import (
	"fmt"
	"strings"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/penstock/penstock"
)

var parser = cron.NewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Descriptor)

// Next returns the first time after the given one that spec describes, in UTC.
// A spec has five fields, minute hour day-of-month month day-of-week, with *,
// lists, ranges, steps and the names of months and days, or is @hourly, @daily
// (@midnight), @weekly, @monthly or @yearly (@annually). If both days are given,
// either is enough, as in crontab(5). The error is a *penstock.FieldError,
// also for times that never come, like the 30th of February.
func Next(spec string, after time.Time) (time.Time, error) {
	// The parser also takes time zones and @every, which depends on when
	// somebody began to count.
	if s := strings.ToUpper(strings.TrimSpace(spec)); strings.HasPrefix(s, "TZ=") || strings.HasPrefix(s, "CRON_TZ=") {
		return time.Time{}, bad(spec, "names a time zone", "schedules are in UTC; convert the hours")
	}
	if strings.HasPrefix(spec, "@every") {
		return time.Time{}, bad(spec, "counts from no fixed time", `use steps, like "*/5 * * * *"`)
	}
	s, err := parser.Parse(spec)
	if err != nil {
		return time.Time{}, bad(spec, "is not a schedule ("+err.Error()+")", `give minute, hour, day of month, month and day of week, like "30 4 * * 1-5", or @hourly, @daily, @weekly, @monthly, @yearly`)
	}
	next := s.Next(after.UTC())
	if next.IsZero() { // the parser looks five years ahead
		return time.Time{}, bad(spec, "describes a time that never comes", "look at the day and the month")
	}
	return next, nil
}

func bad(spec, problem, hint string) error {
	return &penstock.FieldError{Field: fmt.Sprintf("cron %q", spec), Problem: problem, Hint: hint}
}
