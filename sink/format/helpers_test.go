package format_test

import (
	"context"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/binding/spec"
	"github.com/cloudevents/sdk-go/v2/event"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/sink/format"
)

const traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

// order is a message as an application publishes it.
func order() penstock.Message {
	return penstock.Message{
		ID: "1f/17", Seq: 17, Key: "order-4711", Topic: "orders.placed",
		Headers:   map[string]string{"traceparent": traceparent, "note": "by hand"},
		Payload:   []byte(`{"total": 12.50}`),
		CreatedAt: time.Date(2026, 5, 4, 3, 2, 1, 123456000, time.FixedZone("", 7200)), Attempt: 1,
	}
}

// recorder is a sink that keeps its messages, as far as they may be kept.
type recorder struct {
	inOrder bool
	answer  func(m penstock.Message) error
	got     []penstock.Message
	closed  int
}

func (r *recorder) Send(_ context.Context, msgs []penstock.Message) []error {
	var errs []error
	for i, m := range msgs {
		if r.answer != nil {
			if err := r.answer(m); err != nil {
				if errs == nil {
					errs = make([]error, len(msgs))
				}
				errs[i] = err
				continue
			}
		}
		m.Headers = maps.Clone(m.Headers)
		r.got = append(r.got, m)
	}
	return errs
}

func (r *recorder) Close(context.Context) error {
	r.closed++
	return nil
}

func (r *recorder) KeepsOrder() bool { return r.inOrder }

// wrap is Wrap, which must work.
func wrap(t testing.TB, s driver.Sink, cfg format.Config, b format.Binding) driver.Sink {
	t.Helper()
	w, err := format.Wrap(s, cfg, b)
	check(t, err)
	return w
}

// send returns the message as a sink gets it.
func send(t testing.TB, cfg format.Config, b format.Binding, m penstock.Message) penstock.Message {
	t.Helper()
	r := &recorder{}
	if errs := wrap(t, r, cfg, b).Send(t.Context(), []penstock.Message{m}); errs != nil {
		t.Fatal(errs)
	}
	if len(r.got) != 1 {
		t.Fatalf("%d messages arrived", len(r.got))
	}
	return r.got[0]
}

// refusal is the error with which the message is refused.
func refusal(t testing.TB, cfg format.Config, b format.Binding, m penstock.Message) error {
	t.Helper()
	r := &recorder{}
	errs := wrap(t, r, cfg, b).Send(t.Context(), []penstock.Message{m})
	if len(errs) != 1 || !penstock.IsPermanent(errs[0]) || len(r.got) > 0 {
		t.Fatalf("%v, %d sent; want one Permanent error", errs, len(r.got))
	}
	return errs[0]
}

// fromHeaders reads an event in binary mode with the SDK's own means: names by
// prefix, values from their canonical form.
func fromHeaders(t testing.TB, headers map[string]string, prefix, contentType string, payload []byte) event.Event {
	t.Helper()
	version := spec.WithPrefix(prefix).Version("1.0")
	e := event.New()
	e.Context = version.NewContext()
	for name, value := range headers {
		switch {
		case name == contentType:
			check(t, version.AttributeFromKind(spec.DataContentType).Set(e.Context, value))
		case strings.HasPrefix(name, prefix):
			check(t, version.SetAttribute(e.Context, name, value))
		}
	}
	e.DataEncoded = payload
	check(t, e.Validate())
	return e
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
