package format_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/testseed"
	"github.com/penstock/penstock/sink/format"
	"github.com/penstock/penstock/sink/nats"
	"github.com/penstock/penstock/sink/stdout"
	"github.com/penstock/penstock/sink/webhook"
)

var structured = format.Config{Kind: format.CloudEvents, Mode: format.Structured}

func TestRawIsTheSinkItself(t *testing.T) {
	r := &recorder{}
	if wrap(t, r, format.Config{}, nats.Driver.Binding) != driver.Sink(r) {
		t.Error("something was put in front of it")
	}
}

func TestKeepsOrderIsTheSinksWord(t *testing.T) {
	for _, want := range []bool{true, false} {
		s, ok := wrap(t, &recorder{inOrder: want}, structured, stdout.Driver.Binding).(driver.InOrderSink)
		if !ok || s.KeepsOrder() != want {
			t.Errorf("KeepsOrder is not %v", want)
		}
	}
	plain := struct{ driver.Sink }{&recorder{inOrder: true}} // no InOrderSink
	if s, ok := wrap(t, plain, structured, stdout.Driver.Binding).(driver.InOrderSink); ok && s.KeepsOrder() {
		t.Error("KeepsOrder is true of a sink that does not say so")
	}
}

func TestCloseClosesTheSink(t *testing.T) {
	r := &recorder{}
	check(t, wrap(t, r, structured, stdout.Driver.Binding).Close(t.Context()))
	if r.closed != 1 {
		t.Errorf("closed %d times", r.closed)
	}
}

// good and bad are messages for the structured mode; bad is not JSON.
func good(id, key string) penstock.Message {
	return penstock.Message{ID: id, Key: key, Topic: "t", Payload: []byte("1"), Attempt: 1}
}

func bad(id, key string) penstock.Message {
	m := good(id, key)
	m.Payload = []byte("{")
	return m
}

// Every message gets its own verdict, whatever happens to its neighbours: it cannot be encoded,
// the sink refuses it, or an earlier message holds it back.
func TestVerdicts(t *testing.T) {
	refused := penstock.RetryAfter(errors.New("not now"), time.Second)
	const sent, not, by, held = "sent", "not encoded", "refused by the sink", "held back"
	for _, c := range []struct {
		name    string
		inOrder bool
		msgs    []penstock.Message
		want    []string
	}{
		{"all good", true, []penstock.Message{good("1", "a"), good("2", "a")}, []string{sent, sent}},
		{"one refused", true, []penstock.Message{good("1", "a"), good("no", "b")}, []string{sent, by}},
		{"bad alone", true, []penstock.Message{bad("1", "a")}, []string{not}},
		{"only bad", false, []penstock.Message{bad("1", "a"), bad("2", "a")}, []string{not, not}},
		{"bad first", false, []penstock.Message{bad("1", "a"), good("2", "a"), good("no", "c"), good("4", "")}, []string{not, sent, by, sent}},
		{"bad last", false, []penstock.Message{good("no", "a"), good("2", "b"), bad("3", "c")}, []string{by, sent, not}},
		{"a key waits", true, []penstock.Message{good("1", "a"), bad("2", "a"), good("3", "b"), good("4", "a"), bad("5", "a"), good("no", "b")},
			[]string{sent, not, sent, held, held, by}},
		{"no key, no order", true, []penstock.Message{bad("1", ""), good("2", ""), good("no", "")}, []string{not, sent, by}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := &recorder{inOrder: c.inOrder, answer: func(m penstock.Message) error {
				if m.ID == "no" {
					return refused
				}
				return nil
			}}
			errs := wrap(t, r, structured, stdout.Driver.Binding).Send(t.Context(), c.msgs)
			if errs == nil {
				errs = make([]error, len(c.msgs))
			}
			if len(errs) != len(c.msgs) {
				t.Fatalf("%d answers", len(errs))
			}
			arrived := map[string]bool{}
			for _, m := range r.got {
				arrived[m.ID] = true
			}
			for i, err := range errs {
				got := sent
				switch {
				case err == nil:
				case errors.Is(err, refused):
					got = by
				case penstock.IsPermanent(err):
					got = not
				case strings.Contains(err.Error(), "held back") && !penstock.IsUnavailable(err):
					got = held
				default:
					got = err.Error()
				}
				if got != c.want[i] || arrived[c.msgs[i].ID] != (got == sent) {
					t.Errorf("message %d: %s, want %s; arrived: %v", i, got, c.want[i], arrived[c.msgs[i].ID])
				}
			}
		})
	}
}

// One Send's memory is reused by the next. Nothing of a message may show in another, also with
// parallel Sends, refused messages and headers of many sizes.
func TestNothingIsLeftOver(t *testing.T) {
	for _, mode := range []string{format.Binary, format.Structured} {
		var mu sync.Mutex
		got := map[string]penstock.Message{}
		sink := sinkFunc(func(msgs []penstock.Message) []error {
			mu.Lock()
			defer mu.Unlock()
			for _, m := range msgs {
				m.Headers = maps.Clone(m.Headers)
				got[m.ID] = m
			}
			return nil
		})
		cfg := format.Config{Kind: format.CloudEvents, Mode: mode, Extensions: map[string]string{"tenant": "{header.h0}"}}
		w := wrap(t, sink, cfg, webhook.Driver.Binding)

		var all [4][]penstock.Message
		var wg sync.WaitGroup
		for g := range all {
			wg.Go(func() {
				rng := testseed.New(t.Name()+mode, g)
				for n := range 100 * testseed.Rounds() {
					var msgs []penstock.Message
					for i := range rng.IntN(20) {
						m := good(fmt.Sprintf("%d.%d.%d", g, n, i), fmt.Sprint("k", rng.IntN(5)))
						m.CreatedAt = time.Unix(rng.Int64N(3), 0)
						m.Headers = map[string]string{}
						for h := range rng.IntN(100) / (1 + rng.IntN(30)) {
							m.Headers[fmt.Sprint("h", h)] = m.ID
						}
						if rng.IntN(10) == 0 {
							m.Topic = "" // refused
						}
						m.Payload = []byte(`"` + m.ID + `"`)
						msgs = append(msgs, m)
					}
					w.Send(context.Background(), msgs)
					all[g] = append(all[g], msgs...)
				}
			})
		}
		wg.Wait()
		for _, m := range append(append(append(all[0], all[1]...), all[2]...), all[3]...) {
			one, sent := got[m.ID]
			if sent != (m.Topic != "") {
				t.Fatalf("PENSTOCK_SEED=%d: %s: sent: %v, topic %q", testseed.Seed(), m.ID, sent, m.Topic)
			}
			if !sent {
				continue
			}
			fresh := send(t, cfg, webhook.Driver.Binding, m)
			if !maps.Equal(one.Headers, fresh.Headers) || string(one.Payload) != string(fresh.Payload) {
				t.Fatalf("PENSTOCK_SEED=%d: %s arrived as\n%v %s\nalone it is\n%v %s", testseed.Seed(), m.ID, one.Headers, one.Payload, fresh.Headers, fresh.Payload)
			}
		}
	}
}

type sinkFunc func([]penstock.Message) []error

func (f sinkFunc) Send(_ context.Context, msgs []penstock.Message) []error { return f(msgs) }
func (sinkFunc) Close(context.Context) error                               { return nil }
