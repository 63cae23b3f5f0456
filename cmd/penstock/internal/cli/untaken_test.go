package cli_test

import (
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/cmd/penstock/internal/cli"
)

// A group that is held or over its rate waits for that, and not for a worker.
func TestGroupsThatWaitAreNotUntaken(t *testing.T) {
	rate := penstock.Rate{Jobs: 1, Per: time.Hour}
	for _, c := range []struct {
		limits *admin.GroupLimits
		want   string
	}{
		{nil, "take jobs of group a"},
		{&admin.GroupLimits{MaxRunning: 1}, "take jobs of group a"},
		{&admin.GroupLimits{Rate: rate, Tokens: 1}, "take jobs of group a"},
		{&admin.GroupLimits{Rate: rate}, cli.AnyJobs},
		{&admin.GroupLimits{Hold: admin.Hold{Until: time.Unix(1, 0)}}, cli.AnyJobs},
	} {
		q := admin.QueueStatus{Queue: "q", Ready: 1, Groups: []admin.GroupStatus{{Group: "a", Ready: 1, OldestAge: time.Hour, Limits: c.limits}, {Group: "b"}}}
		if of, _ := cli.Untaken(&q, time.Minute); of != c.want {
			t.Errorf("with the limits %+v no worker seems to %s, want to %s", c.limits, of, c.want)
		}
	}
}
