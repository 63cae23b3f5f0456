package storetest

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/suite"
)

var inputCases = named("Input", inputBadFieldsAreNamed, inputNamesUpToTheLimit, inputSubscribeUpToTheLimits,
	inputFetchOfNothing, inputNoSuchOutbox, inputNoSuchSubscription)

// Nothing of a call with one bad message is written, and the transaction that
// the call was made in is as good as before.
func inputBadFieldsAreNamed(e *env) {
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
	r := e.read()
	tx := e.begin()
	tx.publish(message("", "in the transaction"))
	for _, b := range bad {
		e.BadField("Publish in a transaction", tx.Tx.Publish(e.ctx, outbox, message("", "with a bad one"), b.msg), b.field)
	}
	tx.Commit()
	for _, b := range bad {
		e.BadField("Publish", e.Store.Publish(e.ctx, outbox, message("", "with a bad one"), b.msg, message("", "after it")), b.field)
	}
	e.publish(message("", "good"))
	r.want("in the transaction", "good")
}

func inputNamesUpToTheLimit(e *env) {
	for _, name := range []string{"", "_own", "a\x00b", "a\xff", strings.Repeat("n", penstock.MaxNameBytes+1), strings.Repeat("日", 17)} {
		e.BadField(fmt.Sprintf("CreateOutbox %q", name), e.Store.CreateOutbox(e.ctx, name), "outbox")
	}
	suite.Equal(e, len(e.status()), 1, "outboxes")
	for _, name := range []string{"n", strings.Repeat("n", penstock.MaxNameBytes), strings.Repeat("日", penstock.MaxNameBytes/3)} {
		e.Must(e.Store.CreateOutbox(e.ctx, name), "CreateOutbox "+name)
		e.Must(e.Store.Publish(e.ctx, name, message("", "m")), "Publish")
		e.subscribe(driver.Subscribe{Outbox: name}).want("m")
	}
}

func inputSubscribeUpToTheLimits(e *env) {
	long := strings.Repeat("s", penstock.MaxSubscriptionBytes)
	holder := strings.Repeat("h", penstock.MaxHolderBytes)
	for _, bad := range []struct {
		field string
		driver.Subscribe
	}{
		{"subscription", driver.Subscribe{}},
		{"subscription", driver.Subscribe{Subscription: long + "s"}},
		{"subscription", driver.Subscribe{Subscription: "a\x00"}},
		{"subscription", driver.Subscribe{Subscription: "\xff"}},
		{"holder", driver.Subscribe{Subscription: "s", Holder: holder + "h"}},
		{"holder", driver.Subscribe{Subscription: "s", Holder: "a\x00"}},
		{"holder", driver.Subscribe{Subscription: "s", Holder: "\xff"}},
		{"lease", driver.Subscribe{Subscription: "s", Lease: -1}},
	} {
		bad.Outbox = outbox
		e.BadField("Subscribe", suite.Err(e.Store.Subscribe(e.ctx, bad.Subscribe)), bad.field)
	}
	suite.Equal(e, len(e.outboxStatus(outbox).Subscriptions), 0, "subscriptions after bad input")
	e.retain(admin.Retention{Age: notInThisTest})
	e.publish(message("", "m"))
	for _, good := range []driver.Subscribe{
		{Ephemeral: true},
		{Subscription: "s"},
		{Subscription: long, Holder: holder, Lease: (math.MaxInt64 * time.Nanosecond).Truncate(time.Microsecond)},
	} {
		good.Outbox = outbox
		src, err := e.Store.Subscribe(e.ctx, good)
		e.Must(err, fmt.Sprintf("Subscribe %+v", good))
		b, err := src.Fetch(e.ctx, driver.Limit{Messages: 1, Bytes: 1})
		e.Must(err, "Fetch")
		e.wantPayloads(b.Messages, "m")
		e.Must(src.Settle(e.ctx, b.Number, delivered(b)...), "Settle")
		if good.Holder != "" {
			if s := e.subscriptionStatus(good); s.Holder != holder || !s.LeaseUntil.After(time.Now().AddDate(200, 0, 0)) {
				e.Errorf("the subscription's status is %+v", s)
			}
		}
		e.Must(src.Close(e.ctx), "Close")
	}
}

func inputFetchOfNothing(e *env) {
	r := e.read()
	e.publish(message("", "m"))
	for _, limit := range []driver.Limit{{}, {Messages: 1}, {Bytes: 1}, {Messages: -1, Bytes: 1}, {Messages: 1, Bytes: -1}} {
		e.BadField(fmt.Sprintf("Fetch %+v", limit), suite.Err(r.Fetch(e.ctx, limit)), "limit")
	}
	r.want("m")
}

func inputNoSuchOutbox(e *env) {
	for _, name := range []string{"missing", outbox + " ", strings.ToUpper(outbox), "Orders\"; drop table x--"} {
		what := func(op string) string { return fmt.Sprintf("%s of %q", op, name) }
		e.MustBe(e.Store.Publish(e.ctx, name, message("", "m")), penstock.ErrNoOutbox, what("Publish"))
		t := e.begin()
		err := t.Tx.Publish(e.ctx, name, message("", "m"))
		if err == nil && e.features.Buffered {
			err = t.Tx.Commit(e.ctx)
		} else {
			t.Rollback()
		}
		e.MustBe(err, penstock.ErrNoOutbox, what("Publish in a transaction"))
		_, err = e.Store.Subscribe(e.ctx, e.request(driver.Subscribe{Outbox: name}))
		e.MustBe(err, penstock.ErrNoOutbox, what("Subscribe"))
		_, err = e.Store.Subscribe(e.ctx, e.request(driver.Subscribe{Outbox: name, Ephemeral: true}))
		e.MustBe(err, penstock.ErrNoOutbox, what("Subscribe"))
		e.MustBe(e.Store.Maintain(e.ctx, name), penstock.ErrNoOutbox, what("Maintain"))
		e.MustBe(e.Store.DropOutbox(e.ctx, name), penstock.ErrNoOutbox, what("DropOutbox"))
		for op, err := range e.operate(name, "sub") {
			e.MustBe(err, penstock.ErrNoOutbox, what(op))
		}
		e.MustBe(e.Store.SetRetention(e.ctx, name, admin.Retention{}), penstock.ErrNoOutbox, what("SetRetention"))
	}
	e.read().want()
}

// operate asks every operation on a subscription for its error.
func (e *env) operate(name, subscription string) map[string]error {
	q := admin.DeadLetterQuery{Outbox: name, Subscription: subscription}
	return map[string]error{
		"DeadLetters":        suite.Err(e.Store.DeadLetters(e.ctx, q)),
		"RetryDeadLetters":   suite.Err(e.Store.RetryDeadLetters(e.ctx, q)),
		"DiscardDeadLetters": suite.Err(e.Store.DiscardDeadLetters(e.ctx, q)),
		"ParkedKeys":         suite.Err(e.Store.ParkedKeys(e.ctx, name, subscription, 10)),
		"RetryParked":        suite.Err(e.Store.RetryParked(e.ctx, name, subscription)),
		"GiveUpParked":       suite.Err(e.Store.GiveUpParked(e.ctx, name, subscription, 1, "")),
		"Replay":             suite.Err(e.Store.Replay(e.ctx, admin.Replay{Outbox: name, Subscription: subscription})),
		"DropSubscription":   e.Store.DropSubscription(e.ctx, name, subscription),
	}
}

// A subscription that was not made yet is an error. Asking makes none.
func inputNoSuchSubscription(e *env) {
	r := e.subscribe(driver.Subscribe{Subscription: "Sub"})
	for _, name := range []string{"missing", "", "sub", "Sub "} {
		for op, err := range e.operate(outbox, name) {
			e.MustBe(err, penstock.ErrNoSubscription, fmt.Sprintf("%s of %q", op, name))
		}
	}
	suite.Equal(e, len(e.outboxStatus(outbox).Subscriptions), 1, "subscriptions of the status")
	r.want()
}
