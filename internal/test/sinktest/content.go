package sinktest

import (
	"bytes"
	"cmp"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/suite"
	"github.com/penstock/penstock/internal/test/testseed"
)

func nothingToSend(e *env) {
	if errs := e.open().Send(e.patient(), nil); firstError(errs) != nil {
		e.Fatalf("an empty Send: %v", errs)
	}
}

// everythingArrives: id, key, topic, headers, traceparent and time reach the
// consumer.
func everythingArrives(e *env) {
	msgs := e.messages(4)
	msgs[0].Headers = map[string]string{
		"traceparent":  "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
		"Content-Type": "application/json",
		"tenant":       "Ærø & søn",
	}
	msgs[0].CreatedAt = time.Date(2026, 1, 2, 3, 4, 5, 678901000, time.FixedZone("", 3600))
	msgs[1].Key = "" // unordered
	msgs[1].Headers = map[string]string{"empty": ""}
	msgs[2].Key = "ключ/with spaces & \"quotes\""
	msgs[2].Attempt = 3
	msgs[3].ID = "9f1c:orders/17"
	e.mustSend(e.open(), msgs)

	byID := map[string]Received{}
	for _, r := range e.drainAll(msgs, false) {
		byID[r.ID] = r
	}
	for _, m := range msgs {
		r := byID[m.ID]
		suite.Equal(e, r.Key, m.Key, "key of %s", m.ID)
		suite.Equal(e, r.Topic, m.Topic, "topic of %s", m.ID)
		suite.Equal(e, r.Payload, m.Payload, "payload of %s", m.ID)
		if !r.CreatedAt.Equal(m.CreatedAt) {
			e.Errorf("%s: created at %v, want %v", m.ID, r.CreatedAt, m.CreatedAt)
		}
		for name, want := range m.Headers {
			if got, ok := r.Headers[name]; !ok || got != want {
				e.Errorf("%s: header %q is %q (there: %v), want %q", m.ID, name, got, ok, want)
			}
		}
	}
}

// awkward are characters that mean something in the formats, headers and URLs on the way.
var awkward = []string{",", ";", `"`, `\`, "\n", "%", "{", "}", "é", "𝒳", " ", "=", "'", "/", "?", "#", "&", "+", ":", "%2C", "\r\n", "\t"}

// awkwardCharacters: ids, keys and headers arrive as they are, with such a character at the beginning, within and at the end. A
// sink may refuse, permanently, characters that end a line or are space at an end; it never changes them.
func awkwardCharacters(e *env) {
	var msgs []penstock.Message
	for _, c := range awkward {
		for _, form := range []string{"%sx", "x%sx", "x%s"} {
			if c == " " && form != "x%sx" {
				continue // the SDK of CloudEvents cuts it off when it reads ids and keys
			}
			text := fmt.Sprintf(form, c)
			m := e.message(text)
			m.ID += text
			m.Headers = map[string]string{"note": text}
			msgs = append(msgs, m)
		}
	}
	errs := e.check(msgs, e.open().Send(e.patient(), msgs))
	for i, err := range errs {
		if err != nil && (!penstock.IsPermanent(err) || strings.TrimSpace(msgs[i].Key) == msgs[i].Key && !strings.ContainsAny(msgs[i].Key, "\r\n\t")) {
			e.Errorf("%q: %v", msgs[i].Key, err)
		}
	}
	sent := confirmed(msgs, errs)
	byID := map[string]Received{}
	for _, r := range e.drainAll(sent, false) {
		byID[r.ID] = r
	}
	for _, m := range sent {
		switch r, ok := byID[m.ID]; {
		case !ok:
			e.Errorf("the id %q has not arrived", m.ID)
		case r.Key != m.Key || r.Headers["note"] != m.Headers["note"]:
			e.Errorf("key and header %q arrived as %q and %q", m.Key, r.Key, r.Headers["note"])
		}
	}
}

// bytesSurvive: a payload is bytes, whatever they are.
func bytesSurvive(e *env) {
	large := make([]byte, cmp.Or(e.LargePayload, 1<<20))
	rng := rand.New(rand.NewPCG(1, 2)) // fixed: any incompressible bytes do
	for i := range large {
		large[i] = byte(rng.Uint32())
	}
	var all [256]byte
	for i := range all {
		all[i] = byte(i)
	}
	payloads := [][]byte{
		nil, {}, {0}, []byte("a\x00b"), []byte("\xff\xfe\x80 not UTF-8"), []byte("line\r\nbreak\n"),
		[]byte(`{"json":"\u0000"}`), all[:], large,
	}
	msgs := e.messages(len(payloads))
	for i, p := range payloads {
		msgs[i].Payload = p
	}
	e.mustSend(e.open(), msgs)
	want := map[string][]byte{}
	for _, m := range msgs {
		want[m.ID] = m.Payload
	}
	for _, r := range e.drainAll(msgs, false) {
		if !bytes.Equal(r.Payload, want[r.ID]) {
			e.Errorf("%d bytes %.40q arrived as %d bytes %.40q", len(want[r.ID]), want[r.ID], len(r.Payload), r.Payload)
		}
	}
}

// largeBatch: more than fits into a buffer along the way.
func largeBatch(e *env) {
	msgs := e.messages(testseed.Steps(5000))
	for i := range msgs {
		msgs[i].Payload = bytes.Repeat([]byte{byte(i)}, 500)
	}
	e.mustSend(e.open(), msgs)
	e.drainAll(msgs, false)
}

// secondDelivery: after a lost answer the relay sends a message again, and that
// must succeed.
func secondDelivery(e *env) {
	s, msgs := e.open(), e.messages(3)
	e.mustSend(s, msgs)
	e.mustSend(s, msgs)
	if e.features.Deduplicates {
		e.drainAll(msgs, false)
		return
	}
	suite.Equal(e, len(e.Drain(e.T, 2*len(msgs))), 2*len(msgs), "messages that arrived of those sent twice")
}

// orderPerKey is how the relay sends to a sink without KeepsOrder: one message
// of a key per Send, the next when it is confirmed.
func orderPerKey(e *env) {
	const keys, rounds = 20, 25
	s := e.open()
	var all []penstock.Message
	for range rounds {
		msgs := make([]penstock.Message, keys)
		for k := range msgs {
			msgs[k] = e.message(fmt.Sprintf("key-%d", k))
		}
		e.mustSend(s, msgs)
		all = append(all, msgs...)
	}
	e.wantKeyOrder(all, e.drainAll(all, false))
}

// orderWithinSend is the promise of InOrderSink.
func orderWithinSend(e *env) {
	const keys, messages, sends = 10, 500, 4
	s := e.open()
	var all []penstock.Message
	for range sends {
		msgs := make([]penstock.Message, messages)
		for i := range msgs {
			msgs[i] = e.message(fmt.Sprintf("key-%d", i%keys))
		}
		e.mustSend(s, msgs)
		all = append(all, msgs...)
	}
	e.wantKeyOrder(all, e.drainAll(all, false))

	for _, bad := range e.Bad {
		msgs := []penstock.Message{e.message(bad.Message.Key), bad.Message, e.message(bad.Message.Key)}
		errs := e.check(msgs, s.Send(e.patient(), msgs))
		if errs == nil || errs[0] != nil || errs[1] == nil || errs[2] == nil {
			e.Errorf("%s: good, bad, good of one key: %v; want the last one held back", bad.Name, errs)
		}
		e.drainAll(msgs[:1], false)
	}
}

func (e *env) wantKeyOrder(sent []penstock.Message, got []Received) {
	e.Helper()
	want := map[string][]string{}
	for _, m := range sent {
		want[m.Key] = append(want[m.Key], m.ID)
	}
	seen := map[string]int{}
	for _, r := range got { // none where the destination cannot be read
		if i := seen[r.Key]; want[r.Key][i] != r.ID {
			e.Fatalf("key %q: message %d is %s, want %s", r.Key, i, r.ID, want[r.Key][i])
		}
		seen[r.Key]++
	}
}

func keepsOrder(e *env) {
	s, ok := e.open().(driver.InOrderSink)
	suite.Equal(e, ok && s.KeepsOrder(), e.features.InOrder, "KeepsOrder")
}
