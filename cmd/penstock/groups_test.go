package main

import (
	"testing"

	"github.com/penstock/penstock/internal/terminal"
	"github.com/penstock/penstock/internal/test/postgrestest"
)

func TestGroupPolicies(t *testing.T) {
	t.Parallel()
	d := urlDesk(t, postgrestest.Database(t))
	d.must("queue", "create", "mails")
	same(t, "none", d.must("queue", "group", "list", "mails"), "No group of queue mails has a policy or is held: penstock queue group set mails GROUP --max-running 5 sets one.\n")
	same(t, "set", d.must("queue", "group", "set", "mails", "shop", "--max-running", "5", "--rate", "60/1m", "--burst", "10", "--weight", "4"), "Group shop of mails: 5 at a time, 60 in 1m, 10 at once, weight 4.\n")
	same(t, "hold", d.must("queue", "group", "hold", "mails", "slow", "90m30s", "--reason", "answered 429"), "Group slow of mails is held for 1h30m30s.\n")
	contains(t, d.must("queue", "group", "list", "mails"), "MAX RUNNING", "shop", "60 in 1m, 10 at once", "slow", "answered 429")
	contains(t, d.must("queue", "group", "list", "mails", "--json"), `{"group":"shop","max_running":5,"rate":{"jobs":60,"per_ns":60000000000,"burst":10},"weight":4}`, `"group":"slow","held_until":`)
	d.must("enqueue", "mails", "x", "--group", "slow")
	contains(t, d.must("status", "mails", "--groups"), "HELD FOR", "LIMITS", "  1h30m  ", "held: ")
	same(t, "lift", d.must("queue", "group", "set", "mails", "shop"), "Group shop of mails: no policy.\n")
	same(t, "release", d.must("queue", "group", "hold", "mails", "slow", "0"), "Group slow of mails is not held.\n")
	contains(t, d.must("queue", "group", "list", "mails"), "No group of queue mails")
	contains(t, d.must("queue", "set", "mails", "--rate", "100/1s", "--burst", "5"), "100 in 1s, 5 at once")
	if r := d.queue("mails").Rate; r == nil || r.Jobs != 100 || r.Burst != 5 {
		t.Errorf("the rate is %+v", r)
	}
	d.must("queue", "set", "mails", "--rate", "unlimited")
	if r := d.queue("mails").Rate; r != nil {
		t.Errorf("the rate is %+v", r)
	}
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"set", "mails", "g", "--rate", "60"}, "give a number and a time, such as 60/1m"},
		{[]string{"set", "mails", "g", "--burst", "3"}, "give --rate as well"},
		{[]string{"set", "mails", "g", "--weight", "101"}, "use 1 to 100"},
		{[]string{"hold", "mails", "*", "1m"}, "or pause the queue"},
		{[]string{"hold", "mails", "g", "soon"}, "or 0"},
	} {
		d.cli(append([]string{"queue", "group"}, c.args...)...).wants(t, terminal.ExitUsage, c.says)
	}
	d.cli("queue", "group", "list", "nothing").wants(t, terminal.ExitFailure, `queue "nothing": no such queue`)
}
