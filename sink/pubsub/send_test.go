package pubsub_test

import (
	"fmt"
	"testing"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/test/pubsubtest"
)

// One of many messages without a key is refused by the service, which does not say for which it refused the
// request. Only that one fails.
func TestOneOfManyWithoutKey(t *testing.T) {
	e := pubsubtest.Start(t)
	e.Topic(t, "orders")
	s := open(t, e.Address)
	defer s.Close(patient(t))
	msgs := make([]penstock.Message, 2500) // more than a request takes
	for i := range msgs {
		msgs[i] = penstock.Message{ID: fmt.Sprint(i), Topic: "orders"}
	}
	msgs[1200].Headers = map[string]string{"googly": "x"}
	for i, err := range s.Send(patient(t), msgs) {
		if (err != nil) != (i == 1200) || i == 1200 && !penstock.IsPermanent(err) {
			t.Errorf("message %d: %v", i, err)
		}
	}
	if got := e.Drain(t, len(msgs)-1, "orders"); len(got) != len(msgs)-1 {
		t.Errorf("%d messages arrived", len(got))
	}
}

// A key whose messages together exceed a request, and go to two topics in turn.
func TestLargeKey(t *testing.T) {
	e := pubsubtest.Start(t)
	e.Topic(t, "orders")
	e.Topic(t, "invoices")
	s := open(t, e.Address)
	defer s.Close(patient(t))
	msgs := make([]penstock.Message, 30)
	for i := range msgs {
		msgs[i] = penstock.Message{ID: fmt.Sprint(i), Key: "k", Topic: "orders", Payload: make([]byte, 1<<20)}
	}
	msgs[25].Topic = "invoices"
	if errs := s.Send(patient(t), msgs); errs != nil {
		t.Fatal(errs)
	}
	if got := e.Drain(t, 1, "invoices"); len(got) != 1 || got[0].ID != "25" {
		t.Errorf("invoices: %d messages", len(got))
	}
	next := 0
	for _, m := range e.Drain(t, len(msgs)-1, "orders") {
		if next == 25 {
			next++
		}
		if m.ID != fmt.Sprint(next) {
			t.Errorf("%s arrived, want %d", m.ID, next)
		}
		next++
	}
}
