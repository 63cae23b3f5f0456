package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/terminal"
)

// recorder is a publisher that records transactions and may refuse one.
type recorder struct {
	driver.Database
	transactions [][]penstock.Message
	refuse       int // counted from 1
}

func (r *recorder) Close() error { return nil }

func (r *recorder) Publish(_ context.Context, _ string, msgs ...penstock.Message) error {
	if len(r.transactions)+1 == r.refuse {
		return errors.New("the database said no")
	}
	r.transactions = append(r.transactions, msgs)
	return nil
}

func TestPublishLines(t *testing.T) {
	line := func(i int) string { return fmt.Sprintf("{\"topic\":\"t\",\"key\":\"%d\"}\n", i) }
	input := func(n int) (s string) {
		for i := range n {
			s += line(i + 1)
		}
		return s
	}
	for _, tc := range []struct {
		name         string
		input        string
		batch        int
		refuse       int
		transactions []int
		err          string
	}{
		{name: "whole batches", input: input(6), batch: 3, transactions: []int{3, 3}},
		{name: "a rest", input: input(7), batch: 3, transactions: []int{3, 3, 1}},
		{name: "one transaction", input: input(7), batch: 0, transactions: []int{7}},
		{name: "no newline at the end", input: strings.TrimSpace(input(4)), batch: 3, transactions: []int{3, 1}},
		{name: "empty lines", input: "\n" + input(2) + " \n\r\n" + line(3), batch: 2, transactions: []int{2, 1}},
		{name: "nothing", input: "", batch: 3},
		{name: "bad in the first batch", input: line(1) + "bad\n" + input(4), batch: 3, err: "line 2: is not a message"},
		{
			name: "bad in the second batch", input: input(4) + "bad\n" + input(4), batch: 3, transactions: []int{3},
			err: "line 5: is not a message: invalid character 'b' looking for beginning of value; 3 messages published, nothing from line 4 on: repeat with tail -n +4",
		},
		{name: "bad in the one transaction", input: input(9) + "bad\n", batch: 0, err: "nothing was published"},
		{name: "bad line number with empty lines", input: "\n\n" + input(3) + "\nbad", batch: 3, transactions: []int{3}, err: "line 7:"},
		{name: "refused", input: input(7), batch: 3, refuse: 2, transactions: []int{3}, err: "publishing lines 4 to 6: the database said no; 3 messages published, nothing from line 4 on"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			store := &recorder{refuse: tc.refuse}
			o := recorded(t, store, tc.input, "--batch", fmt.Sprint(tc.batch))
			if (o.code != terminal.ExitOK) != (tc.err != "") || !strings.Contains(o.stderr, tc.err) {
				t.Errorf("exit code %d, %s, want %q in it", o.code, o.stderr, tc.err)
			}
			var sizes []int
			next := 1
			for _, msgs := range store.transactions {
				sizes = append(sizes, len(msgs))
				for _, m := range msgs {
					if m.Key != fmt.Sprint(next) {
						t.Errorf("message %d has key %s", next, m.Key)
					}
					next++
				}
			}
			if said := fmt.Sprintf(`"published":%d,`, next-1); fmt.Sprint(sizes) != fmt.Sprint(tc.transactions) || !strings.Contains(o.stdout, said) {
				t.Errorf("transactions of %v and %s, want %v", sizes, o.stdout, tc.transactions)
			}
		})
	}
}

func TestLargeMessagesEndABatchEarly(t *testing.T) {
	large := "{\"payload\":\"" + strings.Repeat("x", 5<<20) + "\"}\n"
	store := &recorder{}
	recorded(t, store, strings.Repeat(large, 8), "--batch", "1000").wants(t, terminal.ExitOK, "")
	if len(store.transactions) != 2 || len(store.transactions[0])+len(store.transactions[1]) != 8 {
		t.Errorf("%d transactions, want 8 messages in 2", len(store.transactions))
	}
}

// recorded publishes lines of stdin.
func recorded(t *testing.T, store *recorder, input string, args ...string) outcome {
	d := &desk{t: t, open: func() driver.Database { return store }}
	return d.run(false, input, append([]string{"publish", "o", "--json"}, args...)...)
}

func TestLinesOfJobsThatAreRefused(t *testing.T) {
	d := urlDesk(t, sqliteFile(t))
	d.must("queue", "create", "emails")
	for line, want := range map[string]string{
		`{"topic":"t"}`: `is not a job: json: unknown field "topic"`,
		`{"delay":"1h","not_before":"2999-01-01T00:00:00Z"}`: "has both delay and not_before",
		`{"delay":"soon"}`:        `delay is "soon": use a number with ms, s, m, h or d`,
		`{"not_before":"soon"}`:   "is not a job",
		`{"priority":"high"}`:     "priority cannot be a string: see penstock enqueue --help",
		`{"key":"a","KEY":"b"}`:   "has key twice",
		`[]`:                      `is a JSON array: write an object such as {"payload":"p","key":"k"}`,
		`{"dedup_key":"\u0000"}`:  "dedup key has a NUL",
		"{\"payload\":\"\xff\"}":  "is not valid UTF-8",
		`{"payload":1} {}`:        "more than one JSON value",
		`{"payload_base64":"%%"}`: "illegal base64",
	} {
		d.run(false, line, "enqueue", "emails").wants(t, terminal.ExitUsage, want)
	}
}

func TestReplayRange(t *testing.T) {
	store := &replaying{}
	d := &desk{t: t, open: func() driver.Database { return store }}
	now := time.Now()
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
		{"1", "beginning", `--to is "beginning"`},
	} {
		d.cli("replay", "o", "--yes", "--subscription", "s", "--from", tc.from, "--to", tc.to).wants(t, terminal.ExitUsage, tc.want)
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
		{"-9h", "-90m", admin.Replay{From: now.Add(-9 * time.Hour), To: now.Add(-90 * time.Minute)}},
		{"-7d", "1350", admin.Replay{From: now.Add(-7 * 24 * time.Hour), ToSeq: 1350}},
		{"2026-11-20T15:04:05+02:00", "", admin.Replay{From: time.Date(2026, 11, 20, 13, 4, 5, 0, time.UTC)}},
		{"2026-11-20 15:04", "2026-11-20 15:04:30", admin.Replay{From: local(15, 4, 0), To: local(15, 4, 30)}},
		{"2026-11-20", "2026-11-20T15:04", admin.Replay{From: local(0, 0, 0), To: local(15, 4, 0)}},
	} {
		d.must("replay", "o", "--yes", "--subscription", "s", "--from", tc.from, "--to", tc.to)
		near := func(got, want time.Time) bool {
			return got.Sub(want).Abs() < time.Hour && got.IsZero() == want.IsZero()
		}
		if r := store.asked; r.FromSeq != tc.want.FromSeq || r.ToSeq != tc.want.ToSeq || !near(r.From, tc.want.From) || !near(r.To, tc.want.To) {
			t.Errorf("from %q to %q: %+v", tc.from, tc.to, r)
		}
	}
}

// replaying is a store that notes what it should replay.
type replaying struct {
	driver.Database
	asked admin.Replay
}

func (r *replaying) Close() error { return nil }

func (r *replaying) Replay(_ context.Context, asked admin.Replay) (int64, error) {
	r.asked = asked
	return 1, nil
}
