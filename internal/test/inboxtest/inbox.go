package inboxtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/admin"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/suite"
	"github.com/penstock/penstock/internal/test/testseed"
)

const (
	consumer = "billing"
	nobody   = "nobody" // has no inbox at first
)

// An id is new once, and again after a rollback.
func once(f *fixture) {
	tx := f.begin()
	f.wantFresh(tx, []string{"a", "b", "a"}, "a", "b")
	f.OK(tx.Rollback())
	f.in(func(tx Tx) {
		f.wantFresh(tx, []string{"b", "a", "é"}, "b", "a", "é")
		f.wantFresh(tx, []string{"c", "a"}, "c")
		f.wantFresh(tx, nil)
	})
	f.in(func(tx Tx) {
		f.wantFresh(tx, []string{"a"})
		f.wantFresh(tx, []string{"d", "A", "a "}, "d", "A", "a ")
		for id, want := range map[string]bool{"d": false, "e": true} { // of one it says what it says of some
			if isNew, err := tx.First(f.Context(), id); isNew != want || err != nil {
				f.Errorf("First(%q): %v, %v, want %v", id, isNew, err, want)
			}
		}
	})
}

// Of each consumer an id is new once.
func consumersApart(f *fixture) {
	f.in(func(tx Tx) { f.wantFresh(tx, []string{"a"}, "a") })
	f.OK(f.Store.CreateInbox(f.Context(), nobody, time.Hour))
	tx := suite.Get(f.Begin(f.Context(), nobody)).Must(f, "Begin")
	f.wantFresh(tx, []string{"a"}, "a")
	f.OK(tx.Commit())
	f.in(func(tx Tx) { f.wantFresh(tx, []string{"a"}) })
}

// A consumer that receives a message that another is receiving waits for its end.
func waits(f *fixture) {
	for _, commits := range []bool{true, false} {
		id := fmt.Sprint("commits: ", commits)
		first := f.begin()
		f.wantFresh(first, []string{id}, id)
		var waiting sync.WaitGroup
		var fresh []string
		var err error
		waiting.Go(func() {
			var tx Tx
			if tx, err = f.Begin(f.Context(), consumer); err != nil {
				return
			}
			fresh, err = tx.FirstOf(f.Context(), id)
			err = errors.Join(err, tx.Commit())
		})
		time.Sleep(50 * time.Millisecond) // for the other to wait: without that the test would still pass
		if commits {
			f.OK(first.Commit())
		} else {
			f.OK(first.Rollback())
		}
		waiting.Wait()
		f.OK(err)
		if isNew := len(fresh) == 1; isNew == commits {
			f.Errorf("%s: new is %v", id, isNew)
		}
	}
}

func window(f *fixture) {
	ids := make([]string, 500)
	for i := range ids {
		ids[i] = fmt.Sprint("old-", i)
	}
	f.in(func(tx Tx) {
		f.wantFresh(tx, ids, ids...)
		f.receive(tx, "held", "never", 0)
	})
	f.Age(f)
	f.in(func(tx Tx) { f.wantFresh(tx, ids[:1]) })
	f.OK(f.Store.SetInbox(f.Context(), consumer, time.Hour))
	for i := range 300 {
		f.in(func(tx Tx) { f.receive(tx, fmt.Sprint("young-", i), "", 0, fmt.Sprint("young-", i)) })
	}
	suite.Equal(f, f.Count(f, "received where id like 'old-%'"), 0, "ids left after the window")
	f.in(func(tx Tx) {
		f.receive(tx, "held", "never", 0) // it is not forgotten while it is held
		f.due(tx, "held after the gap never")
		f.wantFresh(tx, []string{"young-0", "old-0"}, "old-0")
	})
	f.Age(f)
	f.in(func(tx Tx) {
		f.receive(tx, "last", "", 0, "last")
		f.receive(tx, "l", "last", 0, "l")
	})
	suite.Equal(f, f.Count(f, "key_heads"), 1, "heads")
}

// A message whose id comes again is published once within the window, and once more after it.
func publishOnceForgets(f *fixture) {
	s := f.Store.(driver.Store)
	f.OK(f.Store.SetInbox(f.Context(), consumer, time.Hour))
	f.OK(s.CreateOutbox(f.Context(), "again"))
	src := suite.Get(s.Subscribe(f.Context(), driver.Subscribe{Outbox: "again", Subscription: "look", Holder: "test"})).Must(f, "Subscribe")
	defer func() { _ = src.Close(context.WithoutCancel(f.Context())) }()
	published := func(want int) {
		f.OK(s.(driver.OncePublisher).PublishOnce(f.Context(), consumer, "again", penstock.Message{ID: "a"}))
		b := suite.Get(src.Fetch(f.Context(), driver.Limit{Messages: 10, Bytes: 1 << 20})).Must(f, "Fetch")
		f.OK(src.Settle(f.Context(), b.Number, driver.Settled{Batch: b}))
		suite.Equal(f, len(b.Messages), want, "messages")
	}
	published(1)
	published(0)
	f.Age(f)
	published(1)
	published(0)
}

// A held message whose handler fails every time stops no other key.
func pastAFailure(f *fixture) {
	var done []string
	fail := errors.New("no")
	h := func(_ context.Context, _ Tx, m penstock.Released) error {
		if m.Key == "bad" {
			return fail
		}
		done = append(done, m.ID)
		return nil
	}
	for _, key := range []string{"bad", "a", "b"} {
		f.OK(f.Process(f.Context(), consumer, received(key, key+"2", key+"1"), 0, h))
	}
	for range 2 {
		f.MustBe(suite.Err(f.ProcessDue(f.Context(), consumer, h)), fail, "ProcessDue")
		if slices.Sort(done); !slices.Equal(done, []string{"a2", "b2"}) {
			f.Errorf("processed %q, want a2 and b2", done)
		}
	}
	f.in(func(tx Tx) {
		due := suite.Get(tx.Due(f.Context(), 10)).Must(f, "Due")
		if len(due) != 1 || due[0].ID != "bad2" || due[0].Missing != "bad1" {
			f.Errorf("due are %v, want bad2 after bad1", due)
		}
	})
}

func inOrder(f *fixture) {
	f.in(func(tx Tx) {
		f.receive(tx, "1", "", time.Hour, "1")
		f.receive(tx, "4", "3", time.Hour)
		f.receive(tx, "3", "2", time.Hour)
		f.receive(tx, "4", "3", time.Hour)
		f.due(tx)
		f.receive(tx, "2", "1", time.Hour, "2", "3", "4")
		f.receive(tx, "2", "1", time.Hour)
	})
	f.in(func(tx Tx) {
		f.receive(tx, "8", "7", 0)
		f.receive(tx, "7", "6", time.Hour)
		f.due(tx, "7 after the gap 6", "8")
		f.receive(tx, "9", "8", time.Hour, "9")
		f.receive(tx, "x", "6", time.Hour, "x after the gap 6")
		f.receive(tx, "5", "4", time.Hour, "5 late")
		f.receive(tx, "6", "5", time.Hour, "6 late")
		f.receive(tx, "10", "x", time.Hour, "10")
	})
	f.in(func(tx Tx) { // a circle, which only a broken producer makes
		for _, m := range [][2]string{{"a", "c"}, {"b", "a"}, {"c", "b"}} {
			f.receive(tx, m[0], m[1], 0)
		}
		got := suite.Get(tx.Due(f.Context(), 10)).Must(f, "Due")
		suite.Equal(f, len(got), 3, "released of a circle")
	})
	f.in(func(tx Tx) {
		m := received("", "no key", "")
		m.Headers = map[string]string{"h": "é"}
		got := suite.Get(tx.InOrder(f.Context(), m, 0)).Must(f, "InOrder")
		if len(got) != 1 || got[0].Headers["h"] != "é" {
			f.Errorf("got %+v, want the message without a key", got)
		}
	})
}

func refuses(f *fixture) {
	f.in(func(tx Tx) {
		for _, id := range []string{"", strings.Repeat("x", 257), "a\x00"} {
			f.BadField(fmt.Sprintf("FirstOf(%q)", id), suite.Err(tx.FirstOf(f.Context(), id)), "")
		}
		for _, wait := range []time.Duration{-1, 5 * 24 * time.Hour} {
			f.BadField(fmt.Sprint("a wait of ", wait), suite.Err(tx.InOrder(f.Context(), received("k", "a", ""), wait)), "")
		}
		fresh := suite.Get(tx.FirstOf(f.Context(), "a")).Must(f, "FirstOf")
		suite.Equal(f, fresh, []string{"a"}, "new, as it was refused before")
		f.BadField("its own predecessor", suite.Err(tx.InOrder(f.Context(), received("k", "a", "a"), 0)), "")
		f.BadField("Due(0)", suite.Err(tx.Due(f.Context(), 0)), "")
	})
	without := suite.Get(f.Begin(f.Context(), nobody)).Must(f, "Begin")
	f.MustBe(suite.Err(without.FirstOf(f.Context(), "a")), penstock.ErrNoInbox, "without an inbox")
	f.OK(without.Rollback())
	f.BadField("no name", f.Store.CreateInbox(f.Context(), "", 0), "")
	f.BadField("too long", f.Store.CreateInbox(f.Context(), strings.Repeat("x", 49), 0), "")
	f.BadField("a second", f.Store.CreateInbox(f.Context(), "x", time.Second), "")
	f.MustBe(f.Store.CreateInbox(f.Context(), consumer, 0), penstock.ErrInboxExists, "CreateInbox")
	f.OK(f.Store.DropInbox(f.Context(), consumer))
	f.MustBe(f.Store.DropInbox(f.Context(), consumer), penstock.ErrNoInbox, "DropInbox again")
	f.MustBe(f.Store.SetInbox(f.Context(), consumer, time.Hour), penstock.ErrNoInbox, "SetInbox")
}

// Held messages can be seen, released and discarded, and missed ones are listed.
func operate(f *fixture) {
	f.in(func(tx Tx) {
		f.receive(tx, "2", "1", time.Hour)
		f.receive(tx, "3", "2", time.Hour)
		f.receive(tx, "5", "4", time.Hour)
	})
	held := suite.Get(f.Store.HeldMessages(f.Context(), admin.HeldQuery{Consumer: consumer})).Must(f, "HeldMessages")
	if len(held) != 3 || held[0].ID != "2" || held[0].Previous != "1" || held[0].PreviousHeld || !held[1].PreviousHeld || held[0].Payload != nil {
		f.Fatalf("held: %+v", held)
	}
	one := suite.Get(f.Store.HeldMessages(f.Context(), admin.HeldQuery{Consumer: consumer, ID: "5"})).Must(f, "HeldMessages")
	if len(one) != 1 || string(one[0].Payload) != "5" || one[0].PayloadBytes != 1 || one[0].Headers[penstock.HeaderPrevious] != "4" {
		f.Fatalf("held by its id: %+v", one)
	}
	gone := suite.Get(f.Store.DiscardHeld(f.Context(), consumer, "2", "no such")).Must(f, "DiscardHeld")
	suite.Equal(f, gone, []string{"2"}, "discarded")
	f.in(func(tx Tx) { f.due(tx, "3 after the gap 2") })
	if n, err := f.Store.ReleaseHeld(f.Context(), admin.HeldQuery{Consumer: consumer, Previous: "4"}); n != 1 || err != nil {
		f.Errorf("released %d, %v, want one", n, err)
	}
	f.in(func(tx Tx) { f.due(tx, "5 after the gap 4") })
	gaps := suite.Get(f.Store.InboxGaps(f.Context(), consumer, 10)).Must(f, "InboxGaps")
	if len(gaps) != 2 || gaps[0].Missing != "4" || gaps[0].Next != "5" || gaps[1].Missing != "2" || !gaps[1].Discarded {
		f.Errorf("gaps: %+v", gaps)
	}
	all := suite.Get(f.Store.Inboxes(f.Context())).Must(f, "Inboxes")
	if len(all) != 1 || all[0].Consumer != consumer || all[0].Keep != penstock.DefaultInboxKeep || all[0].Held != 0 || all[0].Gaps != 2 {
		f.Errorf("inboxes: %+v", all)
	}
}

// Consumers in parallel get the messages of several keys shuffled and more than once, and
// fail at random. Each is processed once, and in its key's order.
func randomUse(f *fixture) {
	f.Logf("PENSTOCK_SEED=%d", testseed.Seed())
	const keys, each = 6, 25
	r := testseed.New(f.Name(), 0)
	var todo []penstock.Message
	for k := range keys {
		for _, m := range chain(fmt.Sprint(k), each) {
			todo = append(todo, m)
			if r.IntN(3) == 0 {
				todo = append(todo, m)
			}
		}
	}
	r.Shuffle(len(todo), func(i, j int) { todo[i], todo[j] = todo[j], todo[i] })
	queue := make(chan penstock.Message, 2*len(todo))
	var open, consumers sync.WaitGroup
	open.Add(len(todo))
	for _, m := range todo {
		queue <- m
	}
	errFails := errors.New("the consumer fails")
	for w := range 4 {
		r := testseed.New(f.Name(), w+1)
		handle := func(ctx context.Context, tx Tx, m penstock.Released) error {
			err := f.effect(ctx, tx, m)
			if err == nil && r.IntN(8) == 0 {
				return errFails
			}
			return err
		}
		consumers.Go(func() {
			for m := range queue {
				switch err := f.Process(f.Context(), consumer, m, time.Hour, handle); {
				case errors.Is(err, errFails):
					queue <- m
					continue
				case err != nil:
					f.Error(err)
				}
				open.Done()
			}
		})
	}
	open.Wait()
	close(queue)
	consumers.Wait()
	f.wantEffects(keys, each)
	if n, err := f.ProcessDue(f.Context(), consumer, nil); n != 0 || err != nil {
		f.Errorf("ProcessDue: got %d and %v, want nothing", n, err)
	}
}
