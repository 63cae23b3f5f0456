package main

import (
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/internal/terminal"
	"github.com/penstock/penstock/internal/test/postgrestest"
)

func TestInboxLifecycle(t *testing.T) {
	t.Parallel()
	eachInbox(t, func(t *testing.T, d *desk, c *consuming) {
		same(t, "none yet", d.must("inbox", "status"), "There is no inbox yet: penstock inbox create CONSUMER makes one.\n")
		same(t, "none yet", d.must("inbox", "list", "--json"), "[]\n")
		same(t, "created", d.must("inbox", "create", "billing"), "Inbox billing is ready.\n")
		same(t, "json", d.must("inbox", "create", "größe; drop", "--keep", "2d", "--json"), `{"consumer":"größe; drop"}`+"\n")
		d.cli("inbox", "create", "billing").wants(t, terminal.ExitFailure, `creating the inbox "billing": the inbox exists already: use it, or choose another name`)
		d.must("inbox", "create", "billing", "--if-missing", "--keep", "1h")
		d.cli("inbox", "create", "").wants(t, terminal.ExitUsage, "consumer has no name")
		d.cli("inbox", "create", "x", "--keep", "1s").wants(t, terminal.ExitUsage, "--keep is 1s: use a time between 1m and 3650d")
		d.cli("inbox", "create", "x", "--keep", "soon").wants(t, terminal.ExitUsage, "use a number with ms, s, m, h or d")
		same(t, "list", d.must("inbox", "list"), "billing\ngröße; drop\n")
		same(t, "list", d.must("inbox", "list", "--json"), `["billing","größe; drop"]`+"\n")

		same(t, "set", d.must("inbox", "set", "billing", "--keep", "30d"), "Inbox billing: ids are known for 30d.\n")
		same(t, "set", d.must("inbox", "set", "billing", "--keep", "1h", "--json"), `{"consumer":"billing","keep_ns":3600000000000}`+"\n")
		d.cli("inbox", "set", "billing").wants(t, terminal.ExitUsage, "nothing to set: give --keep")
		d.cli("inbox", "set", "billing", "--keep", "4000d").wants(t, terminal.ExitUsage, "--keep is 4000d")
		contains(t, d.must("inbox", "status"), "CONSUMER", "billing", "1h", "2d")

		d.must("inbox", "set", "billing", "--keep", "7d")
		c.receives("k", "2", "1", "")
		d.cli("inbox", "drop", "billing").wants(t, terminal.ExitUsage, "nothing was dropped: there is no terminal to ask on")
		d.asked("y\n", "inbox", "drop", "billing").wants2(t, terminal.ExitFailure, "This deletes the inbox of billing with every id it knows, and 1 held message.", "the name does not match")
		if o := d.asked("billing\n", "inbox", "drop", "billing"); o.code != terminal.ExitOK || o.stdout != "Inbox billing is gone (counted before: 1 held message).\n" {
			t.Errorf("%+v", o)
		}
		same(t, "drop", d.must("inbox", "drop", "größe; drop", "--yes", "--json"), `{"consumer":"größe; drop","held":0}`+"\n")
		for _, verb := range []string{"set billing --keep 1d", "status billing", "held billing", "held billing 1", "gaps billing", "release billing --key k", "release billing --all --yes", "discard billing 1 --yes", "drop billing --yes"} {
			d.cli(append([]string{"inbox"}, strings.Fields(verb)...)...).wants(t, terminal.ExitFailure, `inbox "billing": no such inbox: penstock inbox list shows those there are, penstock inbox create CONSUMER makes one`)
		}
	})
}

func TestInboxHeldAndGaps(t *testing.T) {
	t.Parallel()
	eachInbox(t, func(t *testing.T, d *desk, c *consuming) {
		d.must("inbox", "create", "billing")
		same(t, "nothing", d.must("inbox", "held", "billing"), "Nothing of billing is held.\n")
		same(t, "nothing", d.must("inbox", "gaps", "billing"), "No gap of billing was reported.\n")
		began := time.Now()
		c.receives("k", "1", "", "1")
		c.receives("k", "3", "2", "")
		c.receives("k", "4", "3", "")
		c.receives("l", "b", "a", "")

		var status admin.InboxStatus
		if err := json.Unmarshal([]byte(d.must("inbox", "status", "billing", "--json")), &status); err != nil {
			t.Fatal(err)
		}
		if status.Consumer != "billing" || status.Keep != penstock.DefaultInboxKeep || status.Held != 3 || status.HeldBytes != 12 || status.Gaps != 0 || status.NextGap.Before(began.Add(time.Hour-time.Second)) {
			t.Errorf("%+v", status)
		}
		contains(t, d.must("inbox", "status"), "  in ", "12 B")

		table := fields(d.must("inbox", "held", "billing"))
		for i, want := range []string{"ID KEY PREVIOUS WHICH HELD DUE PAYLOAD", "3 k 2 missing", "4 k 3 held", "b l a missing"} {
			if !strings.HasPrefix(table[i], want) {
				t.Errorf("line %d is %q, want %q", i, table[i], want)
			}
		}
		lines := d.must("inbox", "held", "billing", "--key", "k", "--json")
		same(t, "of k", fmt.Sprint(strings.Count(lines, "\n")), "2")
		lines = d.must("inbox", "held", "billing", "--previous", "a", "--json")
		var held map[string]any
		if err := json.Unmarshal([]byte(lines), &held); err != nil {
			t.Fatal(err)
		}
		same(t, "fields", fmt.Sprintf("%v", []any{held["consumer"], held["id"], held["key"], held["previous"], held["previous_held"], held["payload_bytes"], held["payload"]}), "[billing b l a false 4 <nil>]")
		same(t, "nothing", d.must("inbox", "held", "billing", "--key", "x"), "Nothing of billing with the key x is held.\n")
		if o := d.cli("inbox", "held", "billing", "--limit", "1"); o.code != terminal.ExitOK || strings.Count(o.stdout, "\n") != 2 || !strings.Contains(o.stderr, "there are more: raise --limit") {
			t.Errorf("%+v", o)
		}
		contains(t, d.must("inbox", "held", "billing", "4"), "previous  3, which is held", "trace: 4", "of 4", "Next: penstock inbox release billing --id 4\n  or: penstock inbox discard billing 4\n")
		contains(t, d.must("inbox", "held", "billing", "4", "--json"), `"payload":"of 4"`, `"trace":"4"`)
		d.cli("inbox", "held", "billing", "2").wants(t, terminal.ExitFailure, `inbox "billing" holds no message 2: it may have been handed over meanwhile`)
		d.cli("inbox", "held", "billing", "--limit", "0").wants(t, terminal.ExitUsage, "--limit is 0")
		d.cli("inbox", "held", "billing", "--key", "").wants(t, terminal.ExitUsage, "--key is empty")
		d.cli("inbox", "held", "billing", "--full").wants(t, terminal.ExitUsage, "--full goes with ID")

		c.isDue("")
		same(t, "release", d.must("inbox", "release", "billing", "--id", "4"), "1 message of billing due now: the consumer's next inbox_due hands them over.\n")
		c.isDue("3 after 2, 4")
		same(t, "gaps", gapsTable(d), "MISSING KEY FOLLOWED WHY CAME\n2 k 3 waited no")
		c.receives("k", "2", "1", "2 late")
		var gap map[string]any
		if err := json.Unmarshal([]byte(d.must("inbox", "gaps", "billing", "--json")), &gap); err != nil {
			t.Fatal(err)
		}
		same(t, "gap", fmt.Sprintf("%v", []any{gap["consumer"], gap["missing"], gap["key"], gap["followed_by"], gap["discarded"], gap["came"]}), "[billing 2 k 3 false true]")
		c.receives("l", "a", "", "a, b")
		contains(t, d.must("status"), "CONSUMER", "billing")
		contains(t, d.must("status", "--json"), `"inboxes":[{"consumer":"billing","keep_ns":`)
	})
}

// gapsTable is the output of inbox gaps, without the ages.
func gapsTable(d *desk) string {
	d.t.Helper()
	var lines []string
	for _, line := range fields(d.must("inbox", "gaps", "billing")) {
		words := strings.Fields(line)
		lines = append(lines, strings.Join(append(words[:3:3], words[4:]...), " "))
	}
	return strings.Join(lines, "\n")
}

// fields are the lines of a table, each with single spaces.
func fields(table string) (lines []string) {
	for line := range strings.Lines(table) {
		lines = append(lines, strings.Join(strings.Fields(line), " "))
	}
	return lines
}

func TestInboxRelease(t *testing.T) {
	t.Parallel()
	eachInbox(t, func(t *testing.T, d *desk, c *consuming) {
		d.must("inbox", "create", "billing")
		hold := func() {
			t.Helper()
			for _, key := range []string{"k", "l", "m"} {
				c.receives(key, key+"3", key+"2", "")
				c.receives(key, key+"4", key+"3", "")
			}
		}
		hold()
		d.cli("inbox", "release", "billing").wants(t, terminal.ExitUsage, "nothing was released: select messages with --key, --previous or --id, or give --all")
		d.cli("inbox", "release", "billing", "--all", "--key", "k").wants(t, terminal.ExitUsage, "--all is given with flags that narrow the choice")
		d.cli("inbox", "release", "billing", "--key", "").wants(t, terminal.ExitUsage, "--key is empty")
		d.cli("inbox", "release", "billing", "--all").wants(t, terminal.ExitUsage, "nothing was released: there is no terminal to ask on")
		d.cli("inbox", "release", "billing", "--id", "k2").wants(t, terminal.ExitFailure, `inbox "billing" holds no message k2`)
		same(t, "none", d.must("inbox", "release", "billing", "--key", "x"), "Nothing of billing with the key x is held.\n")
		c.isDue("")

		same(t, "of k", d.must("inbox", "release", "billing", "--key", "k"), "2 messages of billing due now: the consumer's next inbox_due hands them over.\n")
		c.isDue("k3 after k2, k4")
		same(t, "for l2", d.must("inbox", "release", "billing", "--previous", "l2", "--json"), `{"consumer":"billing","released":1}`+"\n")
		c.isDue("l3 after l2, l4")
		d.asked("n\n", "inbox", "release", "billing", "--all").wants2(t, terminal.ExitFailure, "Release 2 messages of billing, past the gaps before them?", "nothing was released: it was not confirmed")
		c.isDue("")
		if o := d.asked("y\n", "inbox", "release", "billing", "--all"); o.code != terminal.ExitOK {
			t.Errorf("%+v", o)
		}
		c.isDue("m3 after m2, m4")
		c.receives("m", "m2", "m1", "") // reported missing, it waits like any other
		d.must("inbox", "release", "billing", "--all", "--yes")
		c.isDue("m2 after m1 late")
	})
}

func TestInboxDiscard(t *testing.T) {
	t.Parallel()
	eachInbox(t, func(t *testing.T, d *desk, c *consuming) {
		d.must("inbox", "create", "billing")
		c.receives("k", "1", "", "1")
		c.receives("k", "3", "2", "")
		c.receives("k", "4", "3", "")
		c.receives("k", "5", "4", "")
		d.cli("inbox", "discard", "billing", "4").wants(t, terminal.ExitUsage, "nothing was discarded: there is no terminal to ask on")
		d.cli("inbox", "discard", "billing", "4", "2", "x", "--yes").wants(t, terminal.ExitFailure, `nothing was discarded: inbox "billing" holds no message 2, x`)
		d.asked("n\n", "inbox", "discard", "billing", "4").wants2(t, terminal.ExitFailure, "Discard 1 held message of billing permanently?")
		same(t, "discard", d.must("inbox", "discard", "billing", "4", "4", "--yes"), "1 held message of billing discarded.\n")
		c.isDue("5 after 4") // and 3 waits for 2, as before
		c.receives("k", "2", "1", "2 late, 3 late")
		c.receives("k", "6", "5", "6")
		same(t, "gap", gapsTable(d), "MISSING KEY FOLLOWED WHY CAME\n4 k 5 discarded no")
		c.receives("k", "4", "3", "4 late") // a replay delivers it again
		same(t, "gap", gapsTable(d), "MISSING KEY FOLLOWED WHY CAME\n4 k 5 discarded yes")
		c.receives("k", "8", "7", "")
		same(t, "json", d.must("inbox", "discard", "billing", "8", "--yes", "--json"), `{"consumer":"billing","discarded":1}`+"\n")
		c.receives("k", "9", "8", "9 after 8") // no message waits for a discarded one
	})
}

func TestInboxGrant(t *testing.T) {
	t.Parallel()
	database := postgrestest.Database(t)
	d := urlDesk(t, database)
	d.must("inbox", "create", "billing")
	d.must("inbox", "create", "secret")
	conn := connect(t, database)
	as := func(part string) (*pgx.Conn, func(args ...string) outcome) {
		role := fmt.Sprintf("penstock_%s_%d", part, os.Getpid())
		makeRole(t, database, role)
		same(t, "told", d.must("inbox", "grant", "billing", role, "--"+part), fmt.Sprintf("Role %s may %s on inbox billing.\n", role, part))
		u, err := url.Parse(database)
		if err != nil {
			t.Fatal(err)
		}
		u.User = url.User(role)
		return connect(t, u.String()), func(args ...string) outcome { return invoke(t, append(args, "--database-url", u.String())...) }
	}
	consumer, consumes := as("consume")
	_, operates := as("operate")
	for _, m := range []string{"'k', '2', '1'", "'k', '3', '2'"} {
		if _, err := consumer.Exec(t.Context(), "select penstock.inbox_in_order('billing', "+m+", null, 'x')"); err != nil {
			t.Fatal(err)
		}
	}
	same(t, "sees its own", operates("inbox", "list").stdout, "billing\n")
	operates("inbox", "held", "billing", "2").wants(t, terminal.ExitOK, "")
	operates("inbox", "discard", "billing", "3", "--yes").wants(t, terminal.ExitOK, "")
	operates("inbox", "release", "billing", "--all", "--yes").wants(t, terminal.ExitOK, "")
	operates("inbox", "gaps", "billing").wants(t, terminal.ExitOK, "")
	for _, denied := range []string{"held secret", "gaps secret", "release secret --key k", "discard secret x --yes", "drop billing --yes", "set billing --keep 1d", "create other", "grant secret postgres --operate"} {
		operates(append([]string{"inbox"}, strings.Fields(denied)...)...).wants(t, terminal.ExitDatabase, "permission denied")
	}
	for _, denied := range []string{"held billing", "gaps billing", "release billing --key k"} {
		consumes(append([]string{"inbox"}, strings.Fields(denied)...)...).wants(t, terminal.ExitDatabase, "permission denied")
	}
	same(t, "json", d.must("inbox", "grant", "billing", roleOf(t, conn), "--operate", "--consume", "--json"),
		fmt.Sprintf(`{"consumer":"billing","granted":["consume","operate"],"role":%q}`+"\n", roleOf(t, conn)))
	d.cli("inbox", "grant", "billing", "nobody_at_all", "--consume").wants(t, terminal.ExitUsage, `role "nobody_at_all" does not exist: make it first`)
	d.cli("inbox", "grant", "nothing", roleOf(t, conn), "--consume").wants(t, terminal.ExitFailure, `inbox "nothing": no such inbox`)
	d.cli("inbox", "grant", "billing", "postgres").wants(t, terminal.ExitUsage, "nothing to grant: give --consume or --operate")
}

func TestStoresWithoutRoles(t *testing.T) {
	t.Parallel()
	bareDesk(t).cli("inbox", "grant", "billing", "somebody", "--consume").wants(t, terminal.ExitUsage, "this database has no roles")
}
