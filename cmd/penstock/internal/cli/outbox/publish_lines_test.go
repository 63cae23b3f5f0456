package outbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/cmd/penstock/internal/cli"
	"github.com/penstock/penstock/internal/terminal"
)

// recorder is a publisher that records transactions and may refuse one.
type recorder struct {
	transactions [][]penstock.Message
	refuse       int // counted from 1
}

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
			a := &cli.App{Stdin: strings.NewReader(tc.input), Stderr: terminal.NewScrubber(io.Discard)}
			store := &recorder{refuse: tc.refuse}
			c, err := publishLines(t.Context(), a, store, "o", &publishFlags{LineFlags: cli.LineFlags{Batch: tc.batch}})
			if (err != nil) != (tc.err != "") || err != nil && !strings.Contains(err.Error(), tc.err) {
				t.Errorf("error is %v, want %q in it", err, tc.err)
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
			if fmt.Sprint(sizes) != fmt.Sprint(tc.transactions) || c.Sent != int64(next-1) {
				t.Errorf("transactions of %v and %d published, want %v", sizes, c.Sent, tc.transactions)
			}
		})
	}
}

func TestLargeMessagesEndABatchEarly(t *testing.T) {
	large := "{\"payload\":\"" + strings.Repeat("x", 5<<20) + "\"}\n"
	a := &cli.App{Stdin: strings.NewReader(strings.Repeat(large, 8)), Stderr: terminal.NewScrubber(io.Discard)}
	store := &recorder{}
	if c, err := publishLines(t.Context(), a, store, "o", &publishFlags{LineFlags: cli.LineFlags{Batch: 1000}}); err != nil || c.Sent != 8 || len(store.transactions) != 2 {
		t.Errorf("%d messages in %d transactions, %v; want 8 in 2", c.Sent, len(store.transactions), err)
	}
}
