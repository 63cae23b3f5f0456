package queuetest

import (
	"slices"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/test/suite"
)

// cronTable has the meanings of cron texts, in the same way for every store: when t, a
// full minute in UTC, is one of their times.
var cronTable = []struct {
	spec string
	is   func(t time.Time) bool
}{
	{"* * * * *", func(time.Time) bool { return true }},
	{"*/20 * * * *", func(t time.Time) bool { return t.Minute()%20 == 0 }},
	{"5/20 * * * *", func(t time.Time) bool { return t.Minute()%20 == 5 }},
	{"1-10/3,40 * * * *", func(t time.Time) bool { return slices.Contains([]int{1, 4, 7, 10, 40}, t.Minute()) }},
	{" 30\t4-6,22  * * * ", func(t time.Time) bool {
		return t.Minute() == 30 && slices.Contains([]int{4, 5, 6, 22}, t.Hour())
	}},
	{"0 0 * * 7", weekdays(time.Sunday)},
	{"0 0 * * 0,7", weekdays(time.Sunday)},
	{"0 0 * * 5-7", weekdays(time.Friday, time.Saturday, time.Sunday)},
	{"0 0 * * 6/1", weekdays(time.Saturday, time.Sunday)},
	{"0 0 * * Mon,wed", weekdays(time.Monday, time.Wednesday)},
	{"0 0 * * tue-thu", weekdays(time.Tuesday, time.Wednesday, time.Thursday)},
	{"0 0 * jan-mar,DEC 1", func(t time.Time) bool {
		return weekdays(time.Monday)(t) && (t.Month() <= time.March || t.Month() == time.December)
	}},
	// Either day is enough ...
	{"0 0 13 * 5", func(t time.Time) bool { return midnight(t) && (t.Day() == 13 || t.Weekday() == time.Friday) }},
	{"0 0 1-31 * 1", midnight},
	{"0 0 31 2 1", func(t time.Time) bool { return weekdays(time.Monday)(t) && t.Month() == time.February }},
	// ... unless a field begins with *.
	{"0 0 13 * */2", func(t time.Time) bool {
		return midnight(t) && t.Day() == 13 && t.Weekday()%2 == 0
	}},
	{"0 0 */10 * 1", func(t time.Time) bool { return weekdays(time.Monday)(t) && t.Day()%10 == 1 }},
	{"0 12 29 2 *", func(t time.Time) bool {
		return t.Hour() == 12 && t.Minute() == 0 && t.Day() == 29 && t.Month() == time.February
	}},
	{"@hourly", func(t time.Time) bool { return t.Minute() == 0 }},
	{"@daily", midnight}, {"@Midnight", midnight},
	{"@weekly", weekdays(time.Sunday)},
	{"@monthly", func(t time.Time) bool { return midnight(t) && t.Day() == 1 }},
	{"TZ=Asia/Kolkata 30 5 * * *", midnight},
	{"@yearly", newYear}, {" @annually ", newYear},
}

func midnight(t time.Time) bool { return t.Hour() == 0 && t.Minute() == 0 }
func newYear(t time.Time) bool  { return midnight(t) && t.YearDay() == 1 }

func weekdays(days ...time.Weekday) func(time.Time) bool {
	return func(t time.Time) bool { return midnight(t) && slices.Contains(days, t.Weekday()) }
}

// firstAfter looks for a time minute by minute.
func firstAfter(t time.Time, is func(time.Time) bool) time.Time {
	for t = t.UTC().Truncate(time.Minute).Add(time.Minute); !is(t); t = t.Add(time.Minute) {
	}
	return t
}

func scheduleCronTimes(e *env) {
	for _, c := range cronTable {
		before := time.Now()
		e.schedule(penstock.Schedule{Name: c.spec, Cron: c.spec, Job: job("a")})
		all := e.schedules()
		after := time.Now()
		i := slices.IndexFunc(all, func(s penstock.Schedule) bool { return s.Name == c.spec })
		got, want := all[i].Next.UTC(), firstAfter(before, c.is)
		if !got.Equal(want) && !got.Equal(firstAfter(after, c.is)) {
			e.Errorf("the next time of %q after %s is %s, want %s", c.spec, before.UTC(), got, want)
		}
	}
}

func scheduleCronNonsense(e *env) {
	for _, spec := range []string{"", " ", "nonsense", "* * * *", "* * * * * *", "60 * * * *", "* 24 * * *", "* * 0 * *", "* * 32 * *", "* * * 0 *", "* * * 13 *",
		"* * * * 8", "*/0 * * * *", "*/100 * * * *", "5-1 * * * *", "-1 * * * *", "+1 * * * *", "1- * * * *", "1,,2 * * * *", "001 * * * *", "? * * * *",
		"* * * * fri-sun", "* * * * monday", "jan * * * *", "*-5 * * * *", "0 0 30 2 *", "0 0 31 4,6,9,11 *", "@every 5s", "@reboot", "TZ=Europe/Nowhere 0 4 * * *", "TZ=CEST 0 4 * * *", "TZ=Europe/Berlin", "TZ= 0 4 * * *", "0 4 * * * TZ=Europe/Berlin"} {
		err := e.Store.SetSchedule(e.ctx, penstock.Schedule{Queue: queue, Name: "s", Cron: spec, Job: job("a")})
		e.BadField("SetSchedule with the cron text "+spec, err, "cron")
	}
	suite.Equal(e, len(e.schedules()), 0, "schedules that bad input left")
}
