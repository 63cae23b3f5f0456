package storetest

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/suite"
)

// For stores that know which messages were published, by an inbox.
var onceCases = named("Once", onceByID, onceInOrder, onceOddIDs, onceFromSeveralAtOnce, onceFailuresAreForgotten)

// onceStore is a store that can.
type onceStore interface {
	driver.OncePublisher
	driver.InboxStore
}

// once is the store, with the inboxes imports and others.
func (e *env) once() onceStore {
	store, ok := e.Store.(onceStore)
	if !ok {
		e.Skip("the store has no inboxes")
	}
	for _, inbox := range []string{"imports", "others"} {
		e.Must(store.CreateInbox(e.ctx, inbox, 0), "CreateInbox")
	}
	return store
}

// said makes a message for each text, which has its id, a colon, and a text; without an id nothing comes before the colon.
func said(texts ...string) (msgs []penstock.Message) {
	for _, text := range texts {
		id, _, _ := strings.Cut(text, ":")
		msgs = append(msgs, penstock.Message{ID: id, Key: "k", Payload: []byte(text)})
	}
	return msgs
}

func onceByID(e *env) {
	s := e.once()
	e.Must(e.Store.CreateOutbox(e.ctx, "others"), "CreateOutbox")
	for _, call := range [][]string{{"a:1", "b:1", ":1"}, {"a:2", "c:2", "c:3", ":1", "b:2", ":1"}, {}, {"a:3", "c:4"}, {"d:1"}} {
		e.Must(s.PublishOnce(e.ctx, "imports", outbox, said(call...)...), "PublishOnce")
	}
	e.Must(s.PublishOnce(e.ctx, "others", outbox, said("a:4")...), "PublishOnce by another inbox")
	e.Must(s.PublishOnce(e.ctx, "imports", "others", said("a:5", "e:5")...), "PublishOnce to another outbox by the same inbox")
	e.read().want("a:1", "b:1", ":1", "c:2", ":1", ":1", "d:1", "a:4")
	e.subscribe(driver.Subscribe{Outbox: "others"}).want("e:5")
}

// Leaving messages out of a call changes nothing about the order of the rest, however large it is.
func onceInOrder(e *env) {
	s := e.once()
	rnd := e.Random(0)
	known := map[string]bool{}
	var want []string
	for call := range 12 {
		var texts []string
		for i := range 1 + rnd.IntN(700) {
			id := fmt.Sprint(rnd.IntN(900))
			if id == "0" {
				id = ""
			}
			text := fmt.Sprintf("%s:%d.%d", id, call, i)
			if texts = append(texts, text); !known[id] {
				want = append(want, text)
			}
			known[id] = id != ""
		}
		e.Must(s.PublishOnce(e.ctx, "imports", outbox, said(texts...)...), "PublishOnce")
	}
	suite.Equal(e, payloads(flatten(e.read().drain(plenty))), want, "messages")
}

func onceOddIDs(e *env) {
	s := e.once()
	ids := []string{strings.Repeat("x", penstock.MaxIDBytes), "NULL", "null"}
	for _, text := range oddTexts {
		if text != "" && (&penstock.Message{ID: text}).Validate() == nil && !slices.Contains(ids, text) {
			ids = append(ids, text)
		}
	}
	var msgs []penstock.Message
	for _, id := range ids {
		msgs = append(msgs, penstock.Message{ID: id, Topic: id, Headers: map[string]string{"h": id}, Payload: []byte(id + "\x00\xff")})
	}
	for range 2 {
		e.Must(s.PublishOnce(e.ctx, "imports", outbox, msgs...), "PublishOnce")
	}
	e.sameContents(flatten(e.read().drain(plenty)), msgs)
}

// Calls that give the same messages, in other orders, neither lose one nor wait for each other without end.
func onceFromSeveralAtOnce(e *env) {
	s := e.once()
	const callers, ids = 6, 40
	var texts []string
	for i := range ids {
		texts = append(texts, fmt.Sprintf("%d:", i))
	}
	orders := make([][]string, callers)
	for i := range orders {
		orders[i] = slices.Clone(texts)
		e.Random(i).Shuffle(ids, func(a, b int) { orders[i][a], orders[i][b] = orders[i][b], orders[i][a] })
	}
	e.Must(suite.Concurrently(callers, func(i int) error {
		for _, part := range [][]string{orders[i][:ids/2], orders[i]} {
			if err := s.PublishOnce(e.ctx, "imports", outbox, said(part...)...); err != nil {
				return err
			}
		}
		return nil
	}), "PublishOnce by several at once")
	e.sameContents(flatten(e.read().drain(plenty)), said(texts...))
}

// A message that was not published is new when it comes again.
func onceFailuresAreForgotten(e *env) {
	s := e.once()
	again := said("a:", "b:")
	e.MustBe(s.PublishOnce(e.ctx, "imports", "nowhere", again...), penstock.ErrNoOutbox, "PublishOnce to an outbox that is not there")
	e.MustBe(s.PublishOnce(e.ctx, "nobody", outbox, again...), penstock.ErrNoInbox, "PublishOnce by an inbox that is not there")
	var field *penstock.FieldError
	if err := s.PublishOnce(e.ctx, "imports", outbox, append(said("a:"), penstock.Message{ID: "b", Key: "\x00"})...); !errors.As(err, &field) || field.Field != "key" {
		e.Errorf("PublishOnce of a message that cannot be carried: %v", err)
	}
	e.Must(s.PublishOnce(e.ctx, "imports", outbox, again...), "PublishOnce")
	e.read().want("a:", "b:")
}
