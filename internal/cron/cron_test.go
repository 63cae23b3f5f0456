package cron_test

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/cron"
)

func TestNext(t *testing.T) {
	for _, c := range []struct{ spec, after, want string }{
		{"* * * * *", "2026-03-01T10:00:00Z", "2026-03-01T10:01:00Z"},
		{"* * * * *", "2026-03-01T10:00:59.999Z", "2026-03-01T10:01:00Z"},
		{"*/15 * * * *", "2026-03-01T10:46:00Z", "2026-03-01T11:00:00Z"},
		{"30 4 * * 1-5", "2026-03-06T04:30:00Z", "2026-03-09T04:30:00Z"}, // Friday to Monday
		{"30 4 * * mon,wed", "2026-03-09T05:00:00Z", "2026-03-11T04:30:00Z"},
		{"0 0 13 * 5", "2026-03-01T00:00:00Z", "2026-03-06T00:00:00Z"},   // the 13th or a Friday
		{"0 0 13 * */2", "2026-03-01T00:00:00Z", "2026-06-13T00:00:00Z"}, // a field that begins with *: a 13th that is a Saturday
		{"0 0 * * 7", "2026-03-02T00:00:00Z", "2026-03-08T00:00:00Z"},
		{"0 0 29 2 *", "2026-03-01T00:00:00Z", "2028-02-29T00:00:00Z"},
		{"0 0 29 2 *", "2096-03-01T00:00:00Z", "2104-02-29T00:00:00Z"},
		{"@hourly", "2026-12-31T23:30:00Z", "2027-01-01T00:00:00Z"},
		{"@yearly", "2026-03-01T00:00:00Z", "2027-01-01T00:00:00Z"},
		{"0 2 * * *", "2026-03-29T03:30:00+02:00", "2026-03-29T02:00:00Z"}, // UTC, wherever the caller is
	} {
		after, err := time.Parse(time.RFC3339, c.after)
		if err != nil {
			t.Fatal(err)
		}
		got, err := cron.Next(c.spec, after)
		if err != nil || got.Format(time.RFC3339) != c.want {
			t.Errorf("Next(%q, %s): got %s, %v, want %s", c.spec, c.after, got, err, c.want)
		}
	}
}

func TestNonsense(t *testing.T) {
	for _, spec := range []string{"", "   ", "nonsense", "* * * *", "* * * * * *", "60 * * * *", "* 24 * * *", "* * 0 * *", "* * 32 * *",
		"* * * 13 *", "* * * * 8", "*/0 * * * *", "5-1 * * * *", "-1 * * * *", "0 0 30 2 *", "0 0 31 4,6,9,11 *",
		"@every 5s", "@reboot", "TZ=Europe/Nowhere 0 4 * * *", "TZ=CEST 0 4 * * *", "TZ=Europe/Berlin", "TZ= 0 4 * * *", "0 4 * * * TZ=Europe/Berlin", "CRON_TZ=UTC 0 4 * * *", "\x00", "* * * * *\x00"} {
		got, err := cron.Next(spec, time.Now())
		var f *penstock.FieldError
		if !errors.As(err, &f) || f.Hint == "" {
			t.Errorf("Next(%q): got %s, %v, want a *FieldError with a hint", spec, got, err)
		}
	}
}

// Other libraries know @every 5m.
func TestEvery(t *testing.T) {
	_, err := cron.Next("@every 5m", time.Now())
	if err == nil || !strings.Contains(err.Error(), `every five minutes is "*/5 * * * *"`) {
		t.Error(err)
	}
}

// An interval of minutes is often written with a field too few.
func TestFieldsAreCounted(t *testing.T) {
	_, err := cron.Next("*/5 * * *", time.Now())
	if err == nil || !strings.Contains(err.Error(), "five fields are needed, and it has 4") {
		t.Error(err)
	}
}

func TestZones(t *testing.T) {
	text, err := os.ReadFile("testdata/zones.txt")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		spec, rest, ok := strings.Cut(strings.TrimSpace(line), " | ")
		if !ok {
			continue // a comment
		}
		from, want, _ := strings.Cut(rest, " | ")
		after, err := time.Parse(time.RFC3339, from)
		if err != nil {
			t.Fatal(err)
		}
		for want := range strings.FieldsSeq(want) {
			got, err := cron.Next(spec, after)
			if err != nil || got.Format(time.RFC3339) != want {
				t.Errorf("%q after %s: got %s, %v, want %s", spec, after.UTC().Format(time.RFC3339), got.Format(time.RFC3339), err, want)
			}
			if after = got; err != nil {
				break
			}
		}
	}
}
