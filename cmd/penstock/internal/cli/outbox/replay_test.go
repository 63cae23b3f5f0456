package outbox

import (
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/internal/terminal"
)

func TestReplayRange(t *testing.T) {
	now := time.Date(2026, 11, 21, 15, 0, 0, 0, time.UTC)
	for _, tc := range []struct{ from, to, want string }{
		{"", "", "--from is not given"},
		{"yesterday", "", `--from is "yesterday": use a seq such as 1200`},
		{"-5", "", "for a time ago give its unit"},
		{"-2", "", "for a time ago give its unit"},
		{"+5", "", "a seq is 0 or more"},
		{"2h", "", "use a seq"},
		{"-2x", "", "a time ago is written like"},
		{"1", "0", "no message is before seq 1"},
		{"10", "9", "--from 10 is not before --to 9"},
		{"-1h", "-2h", "is not before"},
		{"-1h", "-1h", "is not before"},
		{"1", "beginning", `--to is "beginning"`},
	} {
		f := replayFlags{from: tc.from, to: tc.to}
		if _, err := f.replay("o", now); err == nil || terminal.ExitCode(err) != terminal.ExitUsage || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("from %q to %q: error is %v, want %q in it", tc.from, tc.to, err, tc.want)
		}
	}
	local := func(hour, minute, second int) time.Time {
		return time.Date(2026, 11, 20, hour, minute, second, 0, time.Local)
	}
	for _, tc := range []struct {
		from, to string
		want     admin.Replay
	}{
		{"1200", "1350", admin.Replay{FromSeq: 1200, ToSeq: 1350}},
		{"7", "7", admin.Replay{FromSeq: 7, ToSeq: 7}},
		{"beginning", "", admin.Replay{}},
		{"-2h", "-90m", admin.Replay{From: now.Add(-2 * time.Hour), To: now.Add(-90 * time.Minute)}},
		{"-7d", "1350", admin.Replay{From: now.Add(-7 * 24 * time.Hour), ToSeq: 1350}},
		{"2026-11-20T15:04:05+02:00", "", admin.Replay{From: time.Date(2026, 11, 20, 13, 4, 5, 0, time.UTC)}},
		{"2026-11-20 15:04", "2026-11-20 15:04:30", admin.Replay{From: local(15, 4, 0), To: local(15, 4, 30)}},
		{"2026-11-20", "2026-11-20T15:04", admin.Replay{From: local(0, 0, 0), To: local(15, 4, 0)}},
	} {
		f := replayFlags{from: tc.from, to: tc.to}
		r, err := f.replay("o", now)
		if err != nil || r.FromSeq != tc.want.FromSeq || r.ToSeq != tc.want.ToSeq || !r.From.Equal(tc.want.From) || !r.To.Equal(tc.want.To) {
			t.Errorf("from %q to %q: %+v, %v", tc.from, tc.to, r, err)
		}
	}
}
