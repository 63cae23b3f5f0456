package storetest

import (
	"bytes"
	"fmt"
	"strings"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/suite"
	"github.com/penstock/penstock/internal/test/testseed"
)

var contentCases = named("Content", contentPayloadBytes, contentKeyAndTopic, contentHeaders, contentCreatedAt,
	contentGivenID, contentDerivedIDsAreUnique, contentCallersKeepTheirMemory)

// sameMessage compares everything that a consumer sees.
func (e *env) sameMessage(got, want penstock.Message) {
	if got.ID != want.ID || got.Seq != want.Seq || got.Attempt != want.Attempt || !got.CreatedAt.Equal(want.CreatedAt) {
		e.Errorf("got message %q, seq %d, attempt %d, of %s\nwant %q, seq %d, attempt %d, of %s",
			got.ID, got.Seq, got.Attempt, got.CreatedAt, want.ID, want.Seq, want.Attempt, want.CreatedAt)
	}
	e.sameContent(got, want)
}

// sameContent compares the producer's fields.
func (e *env) sameContent(got, want penstock.Message) {
	suite.Equal(e, got.Key, want.Key, "key")
	suite.Equal(e, got.Topic, want.Topic, "topic")
	suite.Equal(e, got.Headers, want.Headers, "headers")
	if len(got.Headers) == 0 && got.Headers != nil {
		e.Errorf("headers: got an empty map, want nil where there are none")
	}
	suite.Equal(e, got.Payload, want.Payload, "payload")
}

// roundTrip publishes msgs, which have ids, in a transaction and by
// Store.Publish, and expects each back as it was, and as a dead letter too.
func roundTrip(e *env, msgs []penstock.Message) {
	e.Must(e.Store.CreateOutbox(e.ctx, "other"), "CreateOutbox")
	tx := e.begin()
	tx.publish(msgs...)
	tx.Commit()
	e.Must(e.Store.Publish(e.ctx, "other", msgs...), "Publish")
	for _, name := range []string{outbox, "other"} {
		r := e.subscribe(driver.Subscribe{Outbox: name})
		batches := r.drain(plenty)
		e.sameContents(flatten(batches), msgs)
		r.deadLetter("no", batches...)
		e.sameContents(deadMessages(e.deadLetters(r)), msgs)
	}
}

// sameContents compares by id, without regard to order.
func (e *env) sameContents(got, want []penstock.Message) {
	byID := map[string]penstock.Message{}
	for _, m := range got {
		byID[m.ID] = m
	}
	if len(got) != len(want) || len(byID) != len(want) {
		e.Errorf("got %d messages with %d ids, want %d", len(got), len(byID), len(want))
	}
	for _, w := range want {
		if m, ok := byID[w.ID]; ok {
			e.sameContent(m, w)
		} else {
			e.Errorf("the message with the id %.60q did not come", w.ID)
		}
	}
}

func contentPayloadBytes(e *env) {
	rnd := e.Random(0)
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	var msgs []penstock.Message
	for i, p := range [][]byte{
		nil, {}, {0}, {0, 0, 0}, []byte("a\x00b"), {0xff, 0xfe, 0xfd}, all, []byte(`\x00`), []byte(`\\x41\`),
		[]byte(`'; drop table x; --`), []byte(`{"a": "\u0000"}`), bytes.Repeat([]byte{0}, 1<<20), testseed.Bytes(rnd, 1<<20),
	} {
		msgs = append(msgs, penstock.Message{ID: fmt.Sprint("payload", i), Payload: p})
	}
	roundTrip(e, msgs)
}

// oddTexts are valid and awkward.
var oddTexts = []string{
	"", " ", "  two  ", "\t", "a\nb\r\nc", `a'b"c`, `\`, `\\x00`, `\u0000`, `$1 %s {} {0} {{x}} ?`, "null", "NULL", "0", "true", "[]", "{}",
	"a,b;c:d", "a.b.*.#.>", "über", "日本語", "🜁👩‍👩‍👧‍👦", "e\u0301", "\u00e9", "\ufeffbom", "\u200bzero\u200d", "\u202eright to left", "\ufffd", "\U0010ffff",
	"\x01\x02\x7f", "'; drop table orders; --", "/*", "--", "A", "a", "Ａ",
}

func contentKeyAndTopic(e *env) {
	var msgs []penstock.Message
	for i, s := range append(oddTexts, strings.Repeat("k", penstock.MaxKeyBytes), strings.Repeat("日", penstock.MaxKeyBytes/3)) {
		msgs = append(msgs,
			penstock.Message{ID: fmt.Sprint("key", i), Key: s, Topic: "t"},
			penstock.Message{ID: fmt.Sprint("topic", i), Key: "k", Topic: s})
	}
	roundTrip(e, msgs)
}

func contentHeaders(e *env) {
	msgs := []penstock.Message{
		{ID: "nil"},
		{ID: "empty", Headers: map[string]string{}},
		{ID: "case", Headers: map[string]string{"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "Traceparent": "x", "TRACEPARENT": ""}},
		{ID: "large", Headers: map[string]string{"v": strings.Repeat("v", penstock.MaxHeaderBytes-1)}},
	}
	many := penstock.Message{ID: "many", Headers: map[string]string{}}
	for i, s := range oddTexts {
		msgs = append(msgs, penstock.Message{ID: fmt.Sprint("value", i), Headers: map[string]string{"h": s, "other": "1"}})
		if s != "" {
			many.Headers[s] = fmt.Sprint(i)
		}
	}
	roundTrip(e, append(msgs, many))
}

func contentCreatedAt(e *env) {
	e.publish(message("", "m"))
	r := e.read()
	m := r.fetch(plenty).Messages[0]
	if age := time.Since(m.CreatedAt); age < -time.Hour || age > time.Hour {
		e.Errorf("CreatedAt is %s, want about now", m.CreatedAt)
	}
	suite.Equal(e, m.Attempt, 1, "Attempt of the first delivery")
	r = r.again()
	e.sameMessage(r.fetch(plenty).Messages[0], m) // the id and the time are stable
	tail := e.subscribe(driver.Subscribe{Ephemeral: true})
	e.sameMessage(tail.fetch(plenty).Messages[0], m)
}

func contentGivenID(e *env) {
	var msgs []penstock.Message
	for _, id := range []string{"x", "0", "-1", "550e8400-e29b-41d4-a716-446655440000", `a'b"c\d`, " ", "über/日本語", "order 42 #1", strings.Repeat("i", penstock.MaxIDBytes)} {
		msgs = append(msgs, penstock.Message{ID: id, Payload: []byte("p")})
	}
	roundTrip(e, msgs)
}

// Consumers drop messages whose ids they have seen. An id must not be used again by another outbox, or by
// one that was dropped and created again. Nor must another database use it that feeds the same broker.
func contentDerivedIDsAreUnique(e *env) {
	seen := map[string]string{}
	look := func(s driver.Store, name, where string) {
		e.Must(s.Publish(e.ctx, name, messages("m", 5)...), "Publish")
		r := e.subscribeOn(s, driver.Subscribe{Outbox: name})
		for _, m := range flatten(r.drain(plenty)) {
			if before, ok := seen[m.ID]; ok {
				e.Errorf("the id %q of a message from %s came before from %s", m.ID, where, before)
			}
			seen[m.ID] = where
			if err := (&penstock.Message{ID: m.ID}).Validate(); err != nil {
				e.Errorf("the derived id %q could not be published: %v", m.ID, err)
			}
		}
		r.close()
	}
	e.Must(e.Store.CreateOutbox(e.ctx, "other"), "CreateOutbox")
	look(e.Store, outbox, "the first outbox")
	look(e.Store, "other", "another outbox")
	e.Must(e.Store.DropOutbox(e.ctx, outbox), "DropOutbox")
	e.Must(e.Store.CreateOutbox(e.ctx, outbox), "CreateOutbox")
	look(e.Store, outbox, "an outbox dropped and made anew")
	elsewhere := e.harness.openCreated(e) // perhaps a copy of the database of this one
	e.Must(elsewhere.Store.DropOutbox(e.ctx, outbox), "DropOutbox")
	e.Must(elsewhere.Store.CreateOutbox(e.ctx, outbox), "CreateOutbox")
	look(elsewhere.Store, outbox, "another database")
}

// The caller may change a message after Publish or Fetch.
func contentCallersKeepTheirMemory(e *env) {
	m := penstock.Message{Payload: []byte("payload"), Headers: map[string]string{"h": "v"}}
	tx := e.begin()
	tx.publish(m)
	m.Payload[0], m.Headers["h"] = 'X', "changed"
	tx.Commit()
	want := penstock.Message{Payload: []byte("payload"), Headers: map[string]string{"h": "v"}}
	r := e.read()
	got := r.fetch(plenty).Messages[0]
	e.sameContent(got, want)
	got.Payload[0], got.Headers["h"] = 'Y', "changed too"
	r = r.again()
	e.sameContent(r.fetch(plenty).Messages[0], want)
}
