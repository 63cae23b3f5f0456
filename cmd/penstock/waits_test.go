package main

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/cmd/penstock/internal/cli"
	"github.com/penstock/penstock/internal/terminal"
)

// A group that is held, full or over its rate waits for that, and not for a worker.
func TestGroupsThatWaitAreNotUntaken(t *testing.T) {
	rate := penstock.Rate{Jobs: 1, Per: time.Hour}
	held := &admin.GroupLimits{Hold: admin.Hold{Until: time.Date(2030, 1, 1, 18, 4, 0, 0, time.UTC), Reason: "answered 429"}}
	others := []admin.Worker{{Queue: "q", Name: "w", Groups: []string{"z"}}} // without a worker of the queue, the groups do not matter
	const release = "penstock queue group hold q a 0"
	for _, c := range []struct {
		limits             *admin.GroupLimits
		of, waits, release string
	}{
		{nil, "take jobs of group a", "", ""},
		{&admin.GroupLimits{MaxRunning: 1}, "take jobs of group a", "", ""},
		{&admin.GroupLimits{Rate: rate, Tokens: 1}, "take jobs of group a", "", ""},
		{&admin.GroupLimits{Rate: rate}, cli.AnyJobs, "group a is over its rate of 1 in 1h: 1 job waits", "penstock queue group list q"},
		{held, cli.AnyJobs, "group a is held until 18:04:00 UTC (answered 429): 1 job waits", release},
	} {
		q := admin.QueueStatus{Queue: "q", Ready: 1, OldestAge: time.Hour, Groups: []admin.GroupStatus{{Group: "a", Ready: 1, OldestAge: time.Hour, Limits: c.limits}, {Group: "b"}}}
		if s := cli.Stand(&q, time.Minute, others); s.Of != c.of || s.Waits != c.waits || s.Release != c.release || (s.Ready == 0) != (c.waits != "") {
			t.Errorf("with the limits %+v: %+v", c.limits, s)
		}
	}

	// Ready jobs of groups that wait are not counted with the others.
	q := admin.QueueStatus{Queue: "q", Ready: 8, OldestAge: time.Hour, Groups: []admin.GroupStatus{{Group: "a", Ready: 5, OldestAge: time.Hour, Limits: held}, {Group: "b", Ready: 3, OldestAge: 2 * time.Minute}}}
	if s := cli.Stand(&q, time.Minute, others); s.Of != "take jobs of group b" || s.Waits != "" || s.Ready != 3 || s.Oldest != 2*time.Minute {
		t.Errorf("besides a group that is held: %+v", s)
	}
	// The rate of the queue as a whole holds all groups.
	whole := q
	whole.Groups, whole.Rate, whole.Tokens = whole.Groups[1:], &rate, new(int)
	if s := cli.Stand(&whole, time.Minute, others); s.Waits != "the queue is over its rate of 1 in 1h: 8 jobs wait" || s.Release != "penstock queue set q --rate unlimited" {
		t.Errorf("over the rate of the queue: %+v", s)
	}
	*whole.Tokens = 1
	if s := cli.Stand(&whole, time.Minute, others); s.Waits != "" || s.Of != "take jobs of group b" {
		t.Errorf("within the rate of the queue: %+v", s)
	}
	// A worker of other groups does not count.
	for name, groups := range map[string][]string{"w1": nil, "w2": {"b", "c"}, "": {"a"}} {
		if s := cli.Stand(&q, time.Minute, []admin.Worker{{Queue: "other", Name: "w0"}, {Queue: "q", Name: name, Groups: groups}}); s.Worker != name {
			t.Errorf("worker %q of the groups %q: %+v", name, groups, s)
		}
	}
}

// Each question gets its own answer, though the first one read ahead.
func TestAnswersToSeveralQuestions(t *testing.T) {
	a := &cli.App{Stdin: strings.NewReader("n\ny\n"), Stderr: terminal.NewScrubber(io.Discard), Interactive: true}
	for _, want := range []bool{false, true} {
		if got, err := a.Agrees(t.Context(), cli.Consent{}, "Sure?"); err != nil || got != want {
			t.Errorf("got %v, %v; want %v", got, err, want)
		}
	}
	if _, err := a.Agrees(t.Context(), cli.Consent{Undone: "nothing was done"}, "Sure?"); err == nil || !strings.Contains(err.Error(), "nothing was done: no answer") {
		t.Errorf("got %v", err)
	}
}

func TestSpans(t *testing.T) {
	for s, want := range map[string]time.Duration{
		"0": 0, "90s": 90 * time.Second, "1h30m": 90 * time.Minute, "7d": 168 * time.Hour, "1d12h": 36 * time.Hour, "65535d": 65535 * 24 * time.Hour, "250ms": 250 * time.Millisecond,
	} {
		if d, err := cli.ParseSpan(s); err != nil || d != want {
			t.Errorf("%s: %v, %v", s, d, err)
		}
	}
	for _, s := range []string{"", "7", "d", "-1h", "-1d", "+1d", "1d-1h", "1d+1h", "1.5d", "1h1d", "99999d", "65536d", "65535d2540400h", "x"} {
		if d, err := cli.ParseSpan(s); err == nil {
			t.Errorf("%q is taken for %v", s, d)
		}
	}
	for _, s := range []string{"1d12h", "90ms", "7d", "1h1m1s", "0s"} {
		d, err := cli.ParseSpan(s)
		if err != nil {
			t.Fatal(err)
		}
		same(t, s, cli.SpanText(d), s)
	}
}
