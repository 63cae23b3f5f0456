package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/cmd/penstock/internal/cli"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/terminal"
)

// deadDesk has the dead letters a1 to a4 of orders/billing, and of orders/audit for the same
// messages.
func deadDesk(t *testing.T, d *desk) {
	d.outbox("orders",
		penstock.Message{ID: "a1", Key: "red", Topic: "order.paid", Headers: map[string]string{"reason": "no such queue"}, Payload: []byte(`{"total":1}`)},
		penstock.Message{ID: "a2", Key: "red", Topic: "order.sent", Headers: map[string]string{"reason": "too\nlarge \x1b[2J"}},
		penstock.Message{ID: "a3", Key: "new\nline", Topic: "order.paid", Headers: map[string]string{"reason": "No Such Queue"}, Payload: []byte{0, 0xff}},
		penstock.Message{ID: "a4", Topic: "order.sent", Payload: []byte(strings.Repeat("é", cli.ShownPayload))})
	d.relay("orders", "billing", dies)
	d.relay("orders", "audit", dies)
	same(t, "dead letters to begin with", d.dead("orders", "billing")+", "+d.dead("orders", "audit"), "a1 a2 a3 a4, a1 a2 a3 a4")
}

func TestDeadList(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, d *desk) {
		deadDesk(t, d)
		table := d.must("dead", "list", "orders", "--subscription", "billing")
		if lines := strings.Split(table, "\n"); len(lines) != 9 {
			t.Errorf("the table of four has %d lines:\n%s", len(lines), table)
		}
		contains(t, table, "ATTEMPTS", "   too\n", `new\nline`, "no such queue", "order.paid")

		for args, want := range map[string]string{
			"":                                   "a1 a2 a3 a4",
			"--all":                              "a1 a2 a3 a4",
			"--limit 2":                          "a1 a2",
			"--key red":                          "a1 a2",
			"--topic order.sent":                 "a2 a4",
			"--key red --topic order.sent":       "a2",
			"--error such":                       "a1",
			"a3 a1":                              "a1 a3",
			"a3 --key red":                       "",
			"--older-than 1h":                    "",
			"--newer-than 1h":                    "a1 a2 a3 a4",
			"--newer-than 1d --older-than 1h":    "",
			"--error refused --newer-than 1d12h": "a4",
		} {
			out := d.must(append([]string{"dead", "list", "orders", "--subscription", "billing", "--json"}, strings.Fields(args)...)...)
			var ids []string
			for line := range strings.Lines(out) {
				var dead deadLetter[string]
				if err := json.Unmarshal([]byte(line), &dead); err != nil {
					t.Fatal(err)
				}
				ids = append(ids, dead.ID)
			}
			same(t, args, strings.Join(ids, " "), want)
		}
		same(t, "none", d.must("dead", "list", "orders", "--subscription", "billing", "--key", "blue"), "0 dead letters of orders/billing match.\n")
	})
}

func TestDeadShow(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, d *desk) {
		deadDesk(t, d)
		show := []string{"dead", "show", "orders", "--subscription", "billing"}
		contains(t, d.must(append(show, "a1")...), "a1\n", "order.paid", "red", "reason: no such queue", "1  20", "after 1 attempt\n",
			"\n\n{\"total\":1}\n", "penstock dead retry orders --subscription billing --seq ")
		contains(t, d.must(append(show, "a2")...), `too\nlarge \x1b[2J`, "payload   empty\n")
		contains(t, d.must(append(show, "a3")...), "AP8=\n", "base64 of bytes that are not text", `new\nline`)
		cut, whole := d.must(append(show, "a4")...), d.must(append(show, "a4", "--full")...)
		contains(t, cut, "--full shows the rest", "\n"+strings.Repeat("é", cli.ShownPayload/2)+"\n")
		contains(t, whole, "\n"+strings.Repeat("é", cli.ShownPayload)+"\n")

		var dead deadLetter[string]
		if err := json.Unmarshal([]byte(d.must(append(show, "a3", "--json")...)), &dead); err != nil {
			t.Fatal(err)
		}
		if string(dead.PayloadBase64) != "\x00\xff" || dead.Error != "No Such Queue" || len(dead.Failures) != 1 || dead.Attempts != 1 ||
			time.Since(dead.DiedAt) > time.Hour || dead.Headers["reason"] != "No Such Queue" {
			t.Errorf("got %+v", dead)
		}
		bySeq := d.must("dead", "show", "orders", "--subscription", "billing", "--seq", fmt.Sprint(dead.Seq))
		contains(t, bySeq, "a3\n")
		d.cli(append(show, fmt.Sprint(dead.Seq))...).wants(t, terminal.ExitFailure, "--seq chooses one by its seq")
		d.cli(append(show, "a9")...).wants(t, terminal.ExitFailure, `orders/billing has no such dead letter: id "a9": penstock dead list`)
		d.cli(append(show, "--seq", "99999")...).wants(t, terminal.ExitFailure, `no such dead letter: seq 99999`)
	})
}

func TestDeadRetry(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, d *desk) {
		deadDesk(t, d)
		retry := []string{"dead", "retry", "orders", "--subscription", "billing"}
		same(t, "by key", d.must(append(retry, "--key", "red")...), "2 dead letters of orders/billing retried.\n")
		same(t, "billing", d.dead("orders", "billing"), "a3 a4")
		same(t, "audit", d.dead("orders", "audit"), "a1 a2 a3 a4")

		attempts := map[string]int{}
		for _, m := range d.relay("orders", "billing", deliver) {
			attempts[m.ID] = m.Attempt
		}
		same(t, "sent again", fmt.Sprint(attempts), "map[a1:2 a2:2]")
		if seen := d.relay("orders", "audit", deliver); len(seen) > 0 {
			t.Errorf("audit was sent %v again", seen)
		}

		// An unknown id may mean that the subscription is the wrong one.
		d.cli(append(retry, "a1", "a3")...).wants(t, terminal.ExitFailure, `has no such dead letter: id "a1"`)
		same(t, "after a wrong id", d.dead("orders", "billing"), "a3 a4")
		same(t, "by seq and id, as JSON", d.must(append(retry, "a3", "--json")...), `{"outbox":"orders","retried":1,"subscription":"billing"}`+"\n")

		d.cli(append(retry, "--all")...).wants(t, terminal.ExitUsage, "nothing was retried: there is no terminal to ask on, pass --yes")
		same(t, "nobody was asked", d.dead("orders", "billing"), "a4")
		same(t, "all", d.must(append(retry, "--all", "--yes")...), "1 dead letter of orders/billing retried.\n")
		same(t, "none is left", d.must(append(retry, "--all", "--yes")...), "0 dead letters of orders/billing retried.\n")
		same(t, "no question about none", d.must(append(retry, "--all")...), "0 dead letters of orders/billing retried.\n")
	})
}

func TestDeadDiscard(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, d *desk) {
		deadDesk(t, d)
		discard := []string{"dead", "discard", "orders", "--subscription", "billing"}
		for _, broad := range []string{"--all", "--key red", "--topic order.paid", "--error such", "--older-than 0s", "--newer-than 9d", "--all --limit 1"} {
			args := append(discard, strings.Fields(broad)...)
			d.cli(args...).wants(t, terminal.ExitUsage, "nothing was discarded: there is no terminal to ask on")
			for _, answer := range []string{"n\n", "\n", "", "maybe\n"} {
				if o := d.asked(answer, args...); o.code != terminal.ExitFailure || !strings.Contains(o.stderr, "nothing was discarded") || !strings.Contains(o.stderr, "? [y/N] ") {
					t.Errorf("%s, answer %q: exit code %d, %q", broad, answer, o.code, o.stderr)
				}
			}
			same(t, "after "+broad, d.dead("orders", "billing"), "a1 a2 a3 a4")
		}
		same(t, "by id", d.must(append(discard, "a2")...), "1 dead letter of orders/billing discarded.\n")
		o := d.asked("y\n", append(discard, "--topic", "order.paid")...)
		o.wants(t, terminal.ExitOK, "discard 2 dead letters of orders/billing? [y/N] ")
		same(t, "billing", d.dead("orders", "billing"), "a4")
		same(t, "audit", d.dead("orders", "audit"), "a1 a2 a3 a4")
		d.must(append(discard, "--all", "--yes")...)
		same(t, "billing", d.dead("orders", "billing"), "")
		if seen := d.relay("orders", "billing", deliver); len(seen) > 0 {
			t.Errorf("%v were sent again", seen)
		}
		same(t, "audit", d.dead("orders", "audit"), "a1 a2 a3 a4")
	})
}

// A message that is resent reaches every subscription under a new id. The dead letter stays, or is discarded after the resend.
func TestDeadResend(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, d *desk) {
		deadDesk(t, d)
		resend := []string{"dead", "resend", "orders", "--subscription", "billing"}
		same(t, "one", d.must(append(resend, "a1")...), "1 dead letter of orders/billing sent again.\n")
		same(t, "it stays", d.dead("orders", "billing"), "a1 a2 a3 a4")
		same(t, "as JSON", d.must(append(resend, "a1", "--discard", "--json")...), `{"outbox":"orders","sent_again":1,"subscription":"billing"}`+"\n")
		same(t, "it is gone", d.dead("orders", "billing"), "a2 a3 a4")
		for _, subscription := range []string{"billing", "audit"} {
			new := 0
			for _, m := range d.relay("orders", subscription, deliver) {
				if string(m.Payload) == `{"total":1}` && m.ID != "a1" && m.Attempt == 1 && m.Key == "red" {
					new++
				}
			}
			same(t, subscription, fmt.Sprint(new), "2")
		}
		d.cli(append(resend, "a1")...).wants(t, terminal.ExitFailure, "no such dead letter")
		d.cli("dead", "resend", "orders", "--subscription", "billing").wants(t, terminal.ExitUsage, "nothing was sent again")

		ids := deadJobDesk(t, d)
		same(t, "jobs", d.must("dead", "resend", "mails", "--group", "acme", "--discard"), "2 dead letters of mails sent again.\n")
		same(t, "dead jobs", d.deadJobs(ids), "1 2")
		same(t, "jobs of acme", fmt.Sprint(len(d.claim("mails", "acme"))), "2")
	})
}

func TestDeadNeedsAChoice(t *testing.T) {
	t.Parallel()
	d := urlDesk(t, sqliteFile(t))
	deadDesk(t, d)
	if err := d.store.CreateOutbox(t.Context(), "fresh"); err != nil {
		t.Fatal(err)
	}
	for _, verb := range []string{"retry", "discard"} {
		for args, want := range map[string]string{
			"orders --subscription billing --yes":                  "say which dead letters",
			"orders --subscription billing --yes --limit 3":        "say which dead letters",
			"orders --yes --all":                                   `outbox "orders" has 2 subscriptions, and which one is meant is not given: pass --subscription with one of audit, billing`,
			"orders --subscription billing --yes --all --key red":  "--all is given with flags that narrow the choice: leave it out",
			"orders --subscription billing --yes --key=":           "--key is empty",
			"orders --subscription billing --yes --topic=":         "--topic is empty",
			"orders --subscription billing --yes --error=":         "--error is empty",
			"orders --subscription= --yes --all":                   "--subscription is empty",
			"orders --subscription billing --yes --seq 0":          "--seq is 0",
			"orders --subscription billing --yes --all --limit -1": "--limit is -1",
			"orders --subscription billing --older-than yesterday": "use a number with ms, s, m, h or d",
			"orders --subscription billing --newer-than -2h":       "use a number with ms, s, m, h or d",
			"orders --older-than 2h --newer-than 1h":               "nothing is both",
			"--yes --all":                                          "it takes OUTBOX",
		} {
			d.cli(append([]string{"dead", verb}, strings.Fields(args)...)...).wants(t, terminal.ExitUsage, want)
		}
		d.cli("dead", verb, "orders", "", "--subscription", "billing", "--yes").wants(t, terminal.ExitUsage, "an ID is empty")
		for args, want := range map[string]string{
			"nothing --yes --all":                  `outbox "nothing": no such outbox: nor is there a queue of that name; penstock status`,
			"nothing --yes --all --subscription x": `outbox "nothing": no such outbox: penstock outbox list`,
			"orders --yes --all --subscription x":  `subscription "x" of outbox "orders": no such subscription: penstock status`,
			"fresh --yes --all":                    `outbox "fresh" has no subscription yet`,
		} {
			d.cli(append([]string{"dead", verb}, strings.Fields(args)...)...).wants(t, terminal.ExitFailure, want)
		}
	}
	same(t, "billing", d.dead("orders", "billing"), "a1 a2 a3 a4")
	same(t, "audit", d.dead("orders", "audit"), "a1 a2 a3 a4")
	d.cli("dead", "list", "nothing").wants(t, terminal.ExitFailure, `outbox "nothing": no such outbox`)
	d.cli("dead", "show", "orders").wants(t, terminal.ExitUsage, "it takes OUTBOX or QUEUE and an ID")
	d.cli("dead", "show", "orders", "a1", "a2").wants(t, terminal.ExitUsage, "see penstock dead show --help")
	d.cli("dead", "show", "orders", "a1", "--seq", "1").wants(t, terminal.ExitUsage, "it takes OUTBOX or QUEUE and an ID")
}

// crowd is a store with enough dead letters for several pages.
type crowd struct {
	driver.Database
	alive    map[int64]bool
	last     int64
	calls    []int // numbers of letters that were acted on
	reads    int
	limits   []int  // of the reads
	payload  []byte // of each
	retried  bool   // retried letters die again at once
	between  func()
	failFrom int // the number of the call that fails, from 1
}

func newCrowd(n int64) *crowd {
	c := &crowd{alive: map[int64]bool{}, last: n}
	for seq := range n {
		c.alive[seq+1] = true
	}
	return c
}

func (c *crowd) Close() error { return nil }

func (c *crowd) DeadLetters(_ context.Context, q admin.DeadLetterQuery) (page []admin.DeadLetter, err error) {
	c.reads++
	c.limits = append(c.limits, q.Limit)
	for seq := q.AfterSeq + 1; seq <= c.last && len(page) < q.Limit; seq++ {
		if c.alive[seq] {
			page = append(page, admin.DeadLetter{Message: penstock.Message{Seq: seq, ID: fmt.Sprint("id", seq), Payload: c.payload}})
		}
	}
	if len(page) == 0 || len(page) < q.Limit {
		if c.between != nil {
			c.between()
		}
	}
	return page, nil
}

func (c *crowd) act(q admin.DeadLetterQuery, stays bool) (n int, err error) {
	if len(q.Seqs) == 0 {
		return 0, errors.New("acts on everything")
	}
	if c.calls = append(c.calls, len(q.Seqs)); len(c.calls) == c.failFrom {
		return 0, errors.New("the database said no")
	}
	for _, seq := range q.Seqs {
		if c.alive[seq] {
			n++
			c.alive[seq] = stays
		}
	}
	return n, nil
}

func (c *crowd) RetryDeadLetters(_ context.Context, q admin.DeadLetterQuery) (int, error) {
	return c.act(q, c.retried)
}

func (c *crowd) DiscardDeadLetters(_ context.Context, q admin.DeadLetterQuery) (int, error) {
	return c.act(q, false)
}

func crowdDesk(t *testing.T, c *crowd) *desk {
	return &desk{t: t, open: func() driver.Database { return c }}
}

func TestDeadLettersComeInPages(t *testing.T) {
	c := newCrowd(1203)
	d := crowdDesk(t, c)
	list := d.must("dead", "list", "orders", "--subscription", "billing")
	if n := strings.Count(list, "\n"); n != 1207 || c.reads < 3 {
		t.Errorf("%d lines in %d reads", n, c.reads)
	}
	if n := strings.Count(d.must("dead", "list", "orders", "--subscription", "billing", "--limit", "700", "--json"), "\n"); n != 700 {
		t.Errorf("%d lines of 700", n)
	}
	c.retried = true
	o := d.cli("dead", "retry", "orders", "--subscription", "billing", "--all", "--yes", "--progress")
	o.wants(t, terminal.ExitOK, "")
	same(t, "those that die again at once are retried once", o.stdout, "1,203 dead letters of orders/billing retried.\n")
	same(t, "pages", fmt.Sprint(c.calls), "[500 500 203]")
}

func TestDeadPagesFollowThePayloads(t *testing.T) {
	for _, tc := range []struct {
		bytes int
		want  string
	}{{100, "[16 64 256 364]"}, {200 << 10, "[16 64 64 64 64"}, {4 << 20, "[16 4 4 4 4"}, {40 << 20, "[16 4 1 1 1"}} {
		c := newCrowd(700)
		c.payload = make([]byte, tc.bytes) // all share it
		crowdDesk(t, c).must("dead", "list", "orders", "--subscription", "billing", "--limit", "700", "--json")
		if got := fmt.Sprint(c.limits); !strings.HasPrefix(got, tc.want) {
			t.Errorf("with %d bytes each it reads %s, want %s", tc.bytes, got, tc.want)
		}
	}
}

func TestDiscardKeepsToWhatWasAskedAbout(t *testing.T) {
	c := newCrowd(30)
	c.between = func() { // another operator decides about one, and others die
		c.last = 40
		for seq := int64(31); seq <= 40; seq++ {
			c.alive[seq] = true
		}
		c.alive[7] = false
	}
	o := crowdDesk(t, c).asked("yes\n", "dead", "discard", "orders", "--subscription", "billing", "--all")
	o.wants(t, terminal.ExitOK, "discard 30 dead letters of orders/billing? [y/N] ")
	same(t, "told", o.stdout, "29 dead letters of orders/billing discarded; 1 meanwhile decided by another operator.\n")
	for seq := int64(31); seq <= 40; seq++ {
		if !c.alive[seq] {
			t.Errorf("%d died after the question and is gone", seq)
		}
	}
}

func TestDiscardThatFailsHalfwayTellsHowFarItCame(t *testing.T) {
	c := newCrowd(1203)
	c.failFrom = 2
	o := crowdDesk(t, c).cli("dead", "discard", "orders", "--subscription", "billing", "--all", "--yes")
	o.wants(t, terminal.ExitFailure, "after 500 of 1203: the database said no")
	same(t, "told", o.stdout, "500 dead letters of orders/billing discarded, 703 not.\n")
}

// deadLetter is a line of dead list --json.
type deadLetter[ID any] struct {
	Seq           int64
	ID            ID
	Key           string
	Error         string
	Failures      []penstock.Failure
	Attempts      int
	DiedAt        time.Time `json:"died_at"`
	Headers       map[string]string
	PayloadBase64 []byte `json:"payload_base64"`
}
