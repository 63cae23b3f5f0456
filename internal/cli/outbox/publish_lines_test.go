package outbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/cli"
)

func TestParseLine(t *testing.T) {
	for _, tc := range []struct {
		line, payload string
	}{
		{`{"payload":"text"}`, "text"},
		{`{"payload":"a \"quoted\" \u00e9"}`, "a \"quoted\" é"},
		{`{"payload":{"total": 10}}`, `{"total": 10}`},
		{`{"payload":[1,2]}`, "[1,2]"},
		{`{"payload":12.50}`, "12.50"},
		{`{"payload":""}`, ""},
		{`{"payload":{"a":1,"a":2},"headers":null}`, `{"a":1,"a":2}`}, // a payload is the producer's
		{`{"headers":{"a":"1","A":"2","b":null},"payload":"two headers"}`, "two headers"},
		{`{}`, ""},
		{`{"payload_base64":"AP8="}`, "\x00\xff"},
		{`  {"topic":"t","seq":7,"created_at":"x","attempt":2}  ` + "\r\n", ""},
	} {
		m, err := parseLine([]byte(tc.line))
		if err != nil || string(m.Payload) != tc.payload {
			t.Errorf("%s: payload %q, %v; want %q", tc.line, m.Payload, err, tc.payload)
		}
	}
	m, err := parseLine([]byte(`{"id":"i","key":"k","topic":"t","headers":{"a":"b"},"payload":"p"}`))
	if err != nil || m.ID != "i" || m.Key != "k" || m.Topic != "t" || m.Headers["a"] != "b" {
		t.Errorf("got %+v, %v", m, err)
	}
}

func TestParseLineRefuses(t *testing.T) {
	for _, tc := range []struct{ line, want string }{
		{`{"topik":"t"}`, `unknown field "topik"`},
		{`{"topic":1}`, "topic cannot be a number"},
		{`{"headers":{"a":1}}`, "headers"},
		{`{"payload":"a","payload_base64":"YQ=="}`, "has both payload and payload_base64"},
		{`{"payload_base64":"%"}`, "is no message: illegal base64"},
		{`{"key":"a","topic":"t","key":"a"}`, "has key twice"},
		{`{"key":"a","KEY":"b"}`, "has key twice"},
		{`{"payload":{"a":1},"payload":{"a":2}}`, "has payload twice"},
		{`{"headers":{"a":"1"},"headers":{"b":"1"}}`, "has headers twice"},
		{`{"headers":{"a":"1","b":"2","a":"3"}}`, `has the header "a" twice`},
		{`{"topic":"a"`, "ends within the JSON object"},
		{`{} {}`, "more than one JSON value"},
		{`[]`, "is a JSON array"},
		{`"text"`, "is a JSON string"},
		{`nonsense`, "is no message"},
		{"{\"topic\":\"\xff\"}", "is not valid UTF-8"},
		{`{"key":"a\u0000"}`, "key has a NUL at byte 1"},
		{`{"topic":"` + strings.Repeat("x", penstock.MaxTopicBytes+1) + `"}`, "topic is 1025 bytes"},
	} {
		if _, err := parseLine([]byte(tc.line)); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%.60s: error is %v, want %q in it", tc.line, err, tc.want)
		}
	}
}

func TestLinesThatAreTooLong(t *testing.T) {
	endless := io.MultiReader(strings.NewReader("{\"payload\":\""), zeros{})
	if _, err := cli.NewLines(endless, &messageLines).Batch(1); err == nil || !strings.Contains(err.Error(), "line 1: is longer than") {
		t.Errorf("error is %v", err)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = '0'
	}
	return len(p), nil
}

// recorder is a publisher that keeps transactions and may refuse one.
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
		{name: "bad in the first batch", input: line(1) + "bad\n" + input(4), batch: 3, err: "line 2: is no message"},
		{
			name: "bad in the second batch", input: input(4) + "bad\n" + input(4), batch: 3, transactions: []int{3},
			err: "line 5: is no message: invalid character 'b' looking for beginning of value; 3 messages published, nothing from line 4 on: repeat with tail -n +4",
		},
		{name: "bad in the one transaction", input: input(9) + "bad\n", batch: 0, err: "nothing was published"},
		{name: "bad line number with empty lines", input: "\n\n" + input(3) + "\nbad", batch: 3, transactions: []int{3}, err: "line 7:"},
		{name: "refused", input: input(7), batch: 3, refuse: 2, transactions: []int{3}, err: "publishing lines 4 to 6: the database said no; 3 messages published, nothing from line 4 on"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := &cli.App{Stdin: strings.NewReader(tc.input), Stderr: cli.NewScrubber(io.Discard)}
			store := &recorder{refuse: tc.refuse}
			n, err := publishLines(t.Context(), a, store, "o", &publishFlags{batch: tc.batch})
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
			if fmt.Sprint(sizes) != fmt.Sprint(tc.transactions) || n != int64(next-1) {
				t.Errorf("transactions of %v and %d published, want %v", sizes, n, tc.transactions)
			}
		})
	}
}

func TestLargeMessagesEndABatchEarly(t *testing.T) {
	large := "{\"payload\":\"" + strings.Repeat("x", 20<<20) + "\"}\n"
	a := &cli.App{Stdin: strings.NewReader(strings.Repeat(large, 5)), Stderr: cli.NewScrubber(io.Discard)}
	store := &recorder{}
	if n, err := publishLines(t.Context(), a, store, "o", &publishFlags{batch: 1000}); err != nil || n != 5 || len(store.transactions) != 3 {
		t.Errorf("%d messages in %d transactions, %v; want 5 in 3", n, len(store.transactions), err)
	}
}
