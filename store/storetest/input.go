package storetest

import (
	"errors"
	"fmt"
	"strings"

	"github.com/penstock/penstock"
)

var inputCases = []testCase{
	{name: "BadFieldsAreNamed", run: badFields},
	{name: "BadNames", run: badNames},
	{name: "NoSuchOutbox", run: noSuchOutbox},
	{name: "NoSuchSubscription", run: noSuchSubscription},
}

// Nothing of a call with one bad message is written, and the transaction that
// the call was made in is as good as before.
func badFields(e *env) {
	header := func(name, value string) penstock.Message {
		return penstock.Message{Headers: map[string]string{"good": "1", name: value}}
	}
	bad := []struct {
		field string
		msg   penstock.Message
	}{
		{"id", penstock.Message{ID: "a\x00b"}},
		{"id", penstock.Message{ID: "a\xffb"}},
		{"id", penstock.Message{ID: "a\nb"}},
		{"id", penstock.Message{ID: strings.Repeat("i", penstock.MaxIDBytes+1)}},
		{"key", penstock.Message{Key: "a\x00b"}},
		{"key", penstock.Message{Key: "a\xc3"}},
		{"key", penstock.Message{Key: strings.Repeat("k", penstock.MaxKeyBytes+1)}},
		{"topic", penstock.Message{Topic: "\x00"}},
		{"topic", penstock.Message{Topic: "\xed\xa0\x80"}},
		{"topic", penstock.Message{Topic: strings.Repeat("t", penstock.MaxTopicBytes+1)}},
		{"headers", header("", "v")},
		{"headers", header("a\x00", "v")},
		{"headers", header("a\xff", "v")},
		{"headers", header("n", "a\x00")},
		{"headers", header("n", "\xff")},
		{"headers", header("n", strings.Repeat("v", penstock.MaxHeaderBytes))},
		{"payload", penstock.Message{Payload: make([]byte, penstock.MaxPayloadBytes+1)}},
	}
	check := func(what, field string, err error) {
		e.Helper()
		var f *penstock.FieldError
		if !errors.As(err, &f) {
			e.Errorf("%s with a bad %s: got error %v, want a *FieldError", what, field, err)
		} else if !strings.HasPrefix(f.Field, field) {
			e.Errorf("%s with a bad %s: the FieldError names %q", what, field, f.Field)
		}
	}
	r := e.read()
	tx := e.begin()
	tx.publish(message("", "in the transaction"))
	for _, b := range bad {
		check("Publish in a transaction", b.field, tx.Tx.Publish(e.ctx, outbox, message("", "with a bad one"), b.msg))
	}
	tx.commit()
	for _, b := range bad {
		check("Publish", b.field, e.Store.Publish(e.ctx, outbox, message("", "with a bad one"), b.msg, message("", "after it")))
	}
	e.publish(message("", "good"))
	r.want("in the transaction", "good")
}

func badNames(e *env) {
	for _, name := range []string{"", "a\x00b", strings.Repeat("n", 49), strings.Repeat("日", 17)} {
		err := e.Store.CreateOutbox(e.ctx, name)
		var f *penstock.FieldError
		if !errors.As(err, &f) {
			e.Errorf("CreateOutbox(%q): got error %v, want a *FieldError", name, err)
		}
	}
	if n := len(e.status()); n != 1 {
		e.Errorf("there are %d outboxes, want the one that was there", n)
	}
}

func noSuchOutbox(e *env) {
	for _, name := range []string{"missing", outbox + " ", strings.ToUpper(outbox), "Orders\"; drop table x--"} {
		what := func(op string) string { return fmt.Sprintf("%s of %q", op, name) }
		e.mustBe(e.Store.Publish(e.ctx, name, message("", "m")), penstock.ErrNoOutbox, what("Publish"))
		t := e.begin()
		e.mustBe(t.Tx.Publish(e.ctx, name, message("", "m")), penstock.ErrNoOutbox, what("Publish in a transaction"))
		t.rollback()
		_, err := e.Store.Subscribe(e.ctx, e.request(penstock.Subscribe{Outbox: name}))
		e.mustBe(err, penstock.ErrNoOutbox, what("Subscribe"))
		_, err = e.Store.Subscribe(e.ctx, e.request(penstock.Subscribe{Outbox: name, Ephemeral: true}))
		e.mustBe(err, penstock.ErrNoOutbox, what("Subscribe"))
		e.mustBe(e.Store.Maintain(e.ctx, name), penstock.ErrNoOutbox, what("Maintain"))
		e.mustBe(e.Store.DropOutbox(e.ctx, name), penstock.ErrNoOutbox, what("DropOutbox"))
		for op, err := range e.operate(name, "sub") {
			e.mustBe(err, penstock.ErrNoOutbox, what(op))
		}
		e.mustBe(e.Store.SetRetention(e.ctx, name, penstock.Retention{}), penstock.ErrNoOutbox, what("SetRetention"))
	}
	e.read().want()
}

// operate asks every operation on a subscription for its error.
func (e *env) operate(name, subscription string) map[string]error {
	q := penstock.DeadLetterQuery{Outbox: name, Subscription: subscription}
	_, list := e.Store.DeadLetters(e.ctx, q)
	_, retry := e.Store.RetryDeadLetters(e.ctx, q)
	_, discard := e.Store.DiscardDeadLetters(e.ctx, q)
	_, parked := e.Store.ParkedKeys(e.ctx, name, subscription, 10)
	_, retryParked := e.Store.RetryParked(e.ctx, name, subscription)
	_, replay := e.Store.Replay(e.ctx, penstock.Replay{Outbox: name, Subscription: subscription})
	return map[string]error{
		"DeadLetters": list, "RetryDeadLetters": retry, "DiscardDeadLetters": discard, "ParkedKeys": parked, "RetryParked": retryParked, "Replay": replay,
		"DropSubscription": e.Store.DropSubscription(e.ctx, name, subscription),
	}
}

// A subscription that nobody has made yet is an error. Asking makes none.
func noSuchSubscription(e *env) {
	r := e.subscribe(penstock.Subscribe{Subscription: "Sub"})
	for _, name := range []string{"missing", "", "sub", "Sub "} {
		for op, err := range e.operate(outbox, name) {
			e.mustBe(err, penstock.ErrNoSubscription, fmt.Sprintf("%s of %q", op, name))
		}
	}
	if n := len(e.outboxStatus(outbox).Subscriptions); n != 1 {
		e.Errorf("status shows %d subscriptions, want the one that was there", n)
	}
	r.want()
}
