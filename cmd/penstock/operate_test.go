package main

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/terminal"
	"github.com/penstock/penstock/store/sqlite"
)

func ids(msgs []penstock.Message) string {
	var all []string
	for i := range msgs {
		all = append(all, msgs[i].ID)
	}
	return strings.Join(all, " ")
}

func TestReplay(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, d *desk) {
		d.outbox("orders")
		d.must("outbox", "set", "orders", "--retain-age", "24h")
		if err := d.store.Publish(t.Context(), "orders", numbered(5)...); err != nil {
			t.Fatal(err)
		}
		seen := d.relay("orders", "billing", deliver)
		d.relay("orders", "audit", deliver)
		replay := []string{"replay", "orders", "--subscription", "billing"}

		d.cli(append(replay, "--from", "beginning")...).wants(t, terminal.ExitUsage, "nothing is replayed: there is no terminal to ask on, pass --yes")
		o := d.asked("no\n", append(replay, "--from", "-2h")...)
		if o.code != terminal.ExitFailure || !strings.Contains(o.stderr, "Consumers see the same ids again.\nContinue? [y/N] ") {
			t.Errorf("exit code %d, %q", o.code, o.stderr)
		}
		contains(t, o.stderr, "orders/billing delivers 5 messages again that it has settled")
		contains(t, d.must(append(replay, "--from", "-2h", "--dry-run")...), "5 messages of orders/billing would be delivered again")
		same(t, "nobody agreed", ids(d.relay("orders", "billing", deliver)), "")

		second, fourth := fmt.Sprint(seen[1].Seq), fmt.Sprint(seen[3].Seq)
		for _, tc := range []struct {
			args []string
			want string
		}{
			{[]string{"--from", second, "--to", fourth}, "m2 m3 m4"},
			{[]string{"--from", fourth}, "m4 m5"},
			{[]string{"--from", "0", "--to", second}, "m1 m2"},
			{[]string{"--from", "beginning"}, "m1 m2 m3 m4 m5"},
			{[]string{"--from", "-1h"}, "m1 m2 m3 m4 m5"},
			{[]string{"--from", "-1d", "--to", "-1h"}, ""},
			{[]string{"--from", seen[0].CreatedAt.Format(time.RFC3339Nano), "--to", fourth}, "m1 m2 m3 m4"},
			{[]string{"--from", second, "--to", seen[0].CreatedAt.Format(time.RFC3339Nano)}, ""},
		} {
			out := d.must(append(append(replay, "--yes", "--json"), tc.args...)...)
			var told struct{ Messages int }
			if err := json.Unmarshal([]byte(out), &told); err != nil || told.Messages != len(strings.Fields(tc.want)) {
				t.Errorf("%v: %q, %v", tc.args, out, err)
			}
			if tc.want != "" {
				contains(t, d.must("status"), "a replay is under way")
			}
			same(t, fmt.Sprint(tc.args), ids(d.relay("orders", "billing", deliver)), tc.want)
		}
		same(t, "audit", ids(d.relay("orders", "audit", deliver)), "")
		contains(t, d.must(append(replay, "--from", "-1h", "--yes")...), "5 messages of orders/billing will be delivered again, with the same ids")
		again := d.cli(append(replay, "--from", "-2h", "--yes")...)
		if _, merges := d.store.(*sqlite.Store); merges {
			again.wants(t, 0, "")
			contains(t, again.stdout, "5 messages of orders/billing will be delivered again")
		} else {
			again.wants2(t, terminal.ExitFailure, "a replay of these messages is under way", "wait until it is delivered")
		}
		d.relay("orders", "billing", deliver)
		o = d.cli(append(replay, "--from", "9999", "--yes")...)
		o.wants(t, 0, "")
		same(t, "none is under way", o.stderr, "")
		contains(t, o.stdout, "0 messages")
		d.cli("replay", "orders", "--from", "1", "--yes").wants(t, terminal.ExitUsage, "has 2 subscriptions")
		d.cli("replay", "orders", "--from", "1", "--yes", "--subscription", "x").wants(t, terminal.ExitFailure, "no such subscription")
		d.cli("replay", "nothing", "--from", "1", "--yes").wants(t, terminal.ExitFailure, `outbox "nothing": no such outbox`)
	})
}

// parkOrHold parks messages with that topic and holds the others.
func parkOrHold(m penstock.Message) driver.Verdict {
	refused := []penstock.Failure{{Attempt: m.Attempt, At: time.Now().Add(-3 * time.Minute), Err: "no\nroute"}}
	switch m.Topic {
	case "park":
		return driver.Verdict{Outcome: driver.Parked, Failures: refused, RetryIn: time.Hour}
	case "behind":
		return driver.Verdict{Outcome: driver.Parked}
	}
	return driver.Verdict{Outcome: driver.Dead, Failures: refused, Hold: true}
}

func TestParked(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, d *desk) {
		d.outbox("orders",
			penstock.Message{ID: "p1", Key: "new\nline", Topic: "park"}, penstock.Message{ID: "p2", Key: "new\nline", Topic: "behind"},
			penstock.Message{ID: "h1", Key: "held", Topic: "hold"}, penstock.Message{ID: "h2", Key: "held", Topic: "behind"})
		d.relay("orders", "audit", deliver)
		same(t, "nothing", d.must("parked", "orders"), "Nothing of orders is parked.\n")
		d.relay("orders", "billing", parkOrHold)

		table := d.must("parked", "orders")
		lines := strings.Split(table, "\n")
		if len(lines) != 4 || !strings.Contains(lines[1], `new\nline`) || !strings.Contains(lines[2], "held") {
			t.Fatalf("the table is\n%s", table)
		}
		contains(t, lines[1], "billing", "  no  ", `no\nroute`)
		if !regexp.MustCompile(`  in (1h|\d+m\d*s?) `).MatchString(lines[1]) {
			t.Errorf("it does not say when it is due: %s", lines[1])
		}
		contains(t, lines[2], "  yes  ")
		var keys []parkedKey
		for line := range strings.Lines(d.must("parked", "orders", "--subscription", "billing", "--json")) {
			var k parkedKey
			if err := json.Unmarshal([]byte(line), &k); err != nil {
				t.Fatal(err)
			}
			keys = append(keys, k)
		}
		if len(keys) != 2 || keys[0].Key != "new\nline" || keys[0].Messages != 2 || keys[0].Attempt != 1 || keys[0].Held ||
			keys[0].Err != "no\nroute" || keys[0].Subscription != "billing" || !keys[1].Held {
			t.Errorf("got %+v", keys)
		}
		if o := d.cli("parked", "orders", "--limit", "1"); strings.Count(o.stdout, "\n") != 2 || !strings.Contains(o.stderr, "raise --limit") {
			t.Errorf("%q, %q", o.stdout, o.stderr)
		}
		status := d.must("status", "orders")
		contains(t, strings.ReplaceAll(status, "\n  ", " "), "orders/billing: 1 dead letter to retry or to discard: penstock dead list orders --subscription billing\n",
			"orders/billing: 1 key is held", "orders/billing: no relay runs it")
		contains(t, d.must("dead", "list", "orders", "--subscription", "billing"), "  yes  ")
		contains(t, d.must("dead", "show", "orders", "h1", "--subscription", "billing"), "held      yes: later messages of its key wait")

		same(t, "discarding", d.must("dead", "discard", "orders", "--subscription", "billing", "h1"), "1 dead letter of orders/billing discarded.\n")
		same(t, "lets the key go on", ids(d.relay("orders", "billing", deliver)), "h2")

		give := []string{"parked", "orders", "--subscription", "billing", "--give-up"}
		d.cli(append(give, "9999")...).wants2(t, terminal.ExitFailure, "message 9999 of orders/billing is not the first of a parked key that waits", "penstock parked orders lists those")
		d.cli(append(give, fmt.Sprint(keys[1].FirstSeq))...).wants(t, terminal.ExitFailure, "is not the first of a parked key that waits") // held
		d.cli("parked", "orders", "--give-up", "1").wants(t, terminal.ExitUsage, "--give-up needs --subscription\n")
		d.cli(append(give, "1", "--retry")...).wants(t, terminal.ExitUsage, "goes without --retry")
		d.cli("parked", "orders", "--reason", "r").wants(t, terminal.ExitUsage, "--reason is given without --give-up")

		retry := []string{"parked", "orders", "--retry", "--subscription", "billing"}
		same(t, "another key", d.must(append(retry, "--key", "held", "--json")...), `{"keys":0,"outbox":"orders","subscription":"billing"}`+"\n")
		same(t, "this key", d.must(append(retry, "--key", "new\nline")...), "1 key of orders/billing waited, and will be tried now.\n")
		source, err := d.store.Subscribe(t.Context(), driver.Subscribe{Outbox: "orders", Subscription: "billing", Holder: "test"})
		if err != nil {
			t.Fatal(err)
		}
		for head := ""; head != "p1"; { // in an hour, unless it was requested
			b, err := source.Fetch(t.Context(), driver.Limit{Messages: 100, Bytes: 1 << 20})
			if err != nil {
				t.Fatal(err)
			}
			head = ids(b.Messages)
		}
		if err := source.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		d.relay("orders", "billing", parkOrHold)
		same(t, "given up", d.must(append(give, fmt.Sprint(keys[0].FirstSeq), "--reason", "wrong address", "--json")...),
			fmt.Sprintf(`{"messages":1,"outbox":"orders","seq":%d,"subscription":"billing"}`+"\n", keys[0].FirstSeq))

		d.cli("parked", "nothing").wants(t, terminal.ExitFailure, `outbox "nothing": no such outbox: penstock outbox list`)
		d.cli("parked", "orders", "--subscription", "x").wants(t, terminal.ExitFailure, `subscription "x" of outbox "orders": no such subscription`)
		d.cli("parked", "orders", "--limit", "0").wants(t, terminal.ExitUsage, "--limit is 0")
		d.cli("parked", "orders", "--key", "k").wants(t, terminal.ExitUsage, "--key is given without --retry")
		d.cli("parked", "orders", "--retry", "--key", "").wants(t, terminal.ExitUsage, "--key is empty")
	})
}

// The list shows why an operator gave a message up, and why the sink refused it before.
func TestGivenUpIsListedWithItsRefusal(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, d *desk) {
		d.outbox("orders", penstock.Message{ID: "a"}, penstock.Message{ID: "b"})
		d.relay("orders", "billing", func(m penstock.Message) driver.Verdict {
			all := []penstock.Failure{{Attempt: 1, At: time.Now(), Err: "no such mailbox"}, {At: time.Now(), Err: "wrong address"}}
			if m.ID == "b" {
				all[1].Attempt = 2
			}
			return driver.Verdict{Outcome: driver.Dead, Failures: all}
		})
		table := d.must("dead", "list", "orders")
		if contains(t, table, "wrong address; before: no such mailbox\n"); strings.Count(table, "no such mailbox") != 1 {
			t.Errorf("an attempt is listed with one before it:\n%s", table)
		}
	})
}

// Messages without a key are distinguished by their seq.
func TestParkedWithoutAKey(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, d *desk) {
		d.outbox("orders", penstock.Message{ID: "p1", Topic: "park"}, penstock.Message{ID: "p2", Topic: "park"})
		var seqs []string
		for _, m := range d.relay("orders", "billing", parkOrHold) {
			seqs = append(seqs, fmt.Sprint(m.Seq))
		}
		lines := strings.Split(d.must("parked", "orders"), "\n")
		found := []string{strings.Fields(lines[1])[2], strings.Fields(lines[2])[2]}
		slices.Sort(found)
		same(t, "seqs", strings.Join(found, " "), strings.Join(seqs, " "))
	})
}

func TestRetention(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, d *desk) {
		retention := func(outbox string) admin.Retention {
			all, err := d.store.Status(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, o := range all {
				if o.Outbox == outbox {
					return o.Retention
				}
			}
			t.Fatalf("no outbox %s in %+v", outbox, all)
			return admin.Retention{}
		}
		is := func(outbox string, age time.Duration, bytes int64) {
			t.Helper()
			if r := retention(outbox); r != (admin.Retention{Age: age, Bytes: bytes}) {
				t.Errorf("%s keeps %+v, want %v and %d", outbox, r, age, bytes)
			}
		}
		d.must("outbox", "create", "plain")
		is("plain", 0, 0)
		d.must("outbox", "create", "orders", "--retain-age", "1d12h", "--retain-bytes", "1GiB")
		is("orders", 36*time.Hour, 1<<30)
		contains(t, d.must("status", "orders"), "1d12h or 1.0 GiB")
		contains(t, d.must("outbox", "set", "orders", "--retain-bytes", "off"), "keeps settled messages: 1d12h.")
		is("orders", 36*time.Hour, 0)
		same(t, "as JSON", d.must("outbox", "set", "orders", "--retain-bytes", "64KiB", "--json"), `{"outbox":"orders","retention":{"age_ns":129600000000000,"bytes":65536}}`+"\n")
		contains(t, d.must("outbox", "set", "orders", "--retain-age", "0", "--retain-bytes", "0"), "not at all")
		is("orders", 0, 0)
		d.must("outbox", "create", "orders", "--if-missing", "--retain-age", "1h")
		is("orders", time.Hour, 0)
		d.must("outbox", "create", "orders", "--if-missing")
		is("orders", time.Hour, 0)

		for args, want := range map[string]string{
			"set orders":                              "nothing to set: give --retain-age or --retain-bytes",
			"set orders --retain-age soon":            `--retain-age is "soon": use a number with`,
			"set orders --retain-age -1h":             "--retain-age",
			"set orders --retain-age 24":              "--retain-age",
			"set orders --retain-bytes 1GB":           `--retain-bytes is "1GB": use a whole number of bytes, KiB, MiB`,
			"set orders --retain-bytes -1":            "--retain-bytes",
			"set orders --retain-bytes 1.5GiB":        "--retain-bytes",
			"set orders --retain-bytes 9999999999TiB": "--retain-bytes",
			"create other --retain-age soon":          "--retain-age",
		} {
			d.cli(append([]string{"outbox"}, strings.Fields(args)...)...).wants(t, terminal.ExitUsage, want)
		}
		is("orders", time.Hour, 0)
		d.cli("outbox", "set", "other", "--retain-age", "1h").wants(t, terminal.ExitFailure, `outbox "other": no such outbox: penstock outbox list`)
	})
}

func TestSubscriptionDrop(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, d *desk) {
		d.outbox("orders", numbered(3)...)
		d.relay("orders", "billing", dies)
		d.relay("orders", "audit", dies)
		drop := []string{"subscription", "drop", "orders", "billing"}
		d.cli(drop...).wants(t, terminal.ExitUsage, "nothing was dropped: there is no terminal to ask on")
		for _, answer := range []string{"y\n", "\n", "", "audit\n"} {
			o := d.asked(answer, drop...)
			if o.code != terminal.ExitFailure || !strings.Contains(o.stderr, "nothing was dropped") {
				t.Errorf("answer %q: exit code %d, %q", answer, o.code, o.stderr)
			}
			contains(t, o.stderr, "0 messages in its backlog, 0 parked messages, 3 dead letters are lost to it", "Type its name to continue: ")
		}
		same(t, "still there", d.dead("orders", "billing"), "m1 m2 m3")
		o := d.asked("billing\n", drop...)
		o.wants(t, terminal.ExitOK, "Type its name")
		contains(t, o.stdout, "Subscription billing of orders is gone")
		d.cli("dead", "list", "orders", "--subscription", "billing").wants(t, terminal.ExitFailure, "no such subscription")
		same(t, "the other one", d.dead("orders", "audit"), "m1 m2 m3")

		d.cli(append(drop, "--yes")...).wants(t, terminal.ExitFailure, `subscription "billing" of outbox "orders": no such subscription`)
		d.cli("subscription", "drop", "nothing", "x", "--yes").wants(t, terminal.ExitFailure, `outbox "nothing": no such outbox`)

		source, err := d.store.Subscribe(t.Context(), driver.Subscribe{Outbox: "orders", Subscription: "audit", Holder: "web-1/42"})
		if err != nil {
			t.Fatal(err)
		}
		defer source.Close(t.Context())
		o = d.cli("subscription", "drop", "orders", "audit", "--yes", "--json")
		o.wants(t, terminal.ExitOK, "a relay runs it (web-1/42)")
		same(t, "as JSON", o.stdout, `{"backlog":0,"dead_letters":3,"outbox":"orders","parked":0,"subscription":"audit"}`+"\n")
	})
}

// parkedKey is a line of parked --json.
type parkedKey struct {
	Subscription string
	admin.ParkedKey
}
