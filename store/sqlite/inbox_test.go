package sqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/test/testseed"
	"github.com/penstock/penstock/store/sqlite"
)

// inboxFixture is a file with the inbox "billing".
type inboxFixture struct {
	testing.TB
	store *sqlite.Store
	app   *sql.DB
	inbox *sqlite.Inbox
}

func newInboxFixture(t testing.TB) *inboxFixture {
	_, s, app := newFile(t, sqlite.Options{})
	f := &inboxFixture{t, s, app, sqlite.NewInbox("billing")}
	f.must(s.CreateInbox(t.Context(), "billing", 0))
	return f
}

func (f *inboxFixture) must(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

// in runs fn in a transaction that commits.
func (f *inboxFixture) in(fn func(tx *sql.Tx)) {
	f.Helper()
	tx, err := f.app.BeginTx(f.Context(), nil)
	f.must(err)
	defer func() { _ = tx.Rollback() }()
	fn(tx)
	f.must(tx.Commit())
}

func (f *inboxFixture) wantFresh(tx *sql.Tx, ids []string, want ...string) {
	f.Helper()
	fresh, err := f.inbox.FirstOf(f.Context(), tx, ids...)
	f.must(err)
	if !slices.Equal(fresh, want) {
		f.Fatalf("new are %q of %q, want %q", fresh, ids, want)
	}
}

func (f *inboxFixture) receive(tx *sql.Tx, id, previous string, wait time.Duration, want ...string) {
	f.Helper()
	got, err := f.inbox.InOrder(f.Context(), tx, received("k", id, previous), wait)
	f.must(err)
	f.wantReleased(got, want...)
}

func received(key, id, previous string) penstock.Message {
	m := penstock.Message{ID: id, Key: key, Payload: []byte(id)}
	if previous != "" {
		m.Headers = map[string]string{penstock.HeaderPrevious: previous}
	}
	return m
}

func (f *inboxFixture) wantReleased(got []penstock.Released, want ...string) {
	f.Helper()
	texts := []string{}
	for _, r := range got {
		text := r.ID
		if r.Gap {
			text += " after the gap " + r.Missing
		}
		if r.Late {
			text += " late"
		}
		texts = append(texts, text)
		if string(r.Payload) != r.ID || r.Key != "k" {
			f.Errorf("%s came with key %q and payload %q", r.ID, r.Key, r.Payload)
		}
	}
	if len(texts)+len(want) > 0 && !slices.Equal(texts, want) {
		f.Fatalf("released %q, want %q", texts, want)
	}
}

func TestInboxSaysOnceThatAnIDIsNew(t *testing.T) {
	t.Parallel()
	f := newInboxFixture(t)
	tx, err := f.app.BeginTx(t.Context(), nil)
	f.must(err)
	f.wantFresh(tx, []string{"a", "b", "a"}, "a", "b")
	f.must(tx.Rollback())
	f.in(func(tx *sql.Tx) {
		f.wantFresh(tx, []string{"b", "a", "é"}, "b", "a", "é")
		f.wantFresh(tx, []string{"c", "a"}, "c")
		f.wantFresh(tx, nil)
	})
	f.in(func(tx *sql.Tx) {
		for id, want := range map[string]bool{"a": false, "d": true} {
			if isNew, err := f.inbox.First(t.Context(), tx, id); isNew != want || err != nil {
				t.Errorf("First(%s): got %v and %v, want %v", id, isNew, err, want)
			}
		}
	})
}

func TestInboxForgetsAfterItsWindow(t *testing.T) {
	t.Parallel()
	f := newInboxFixture(t)
	ids := make([]string, 500)
	for i := range ids {
		ids[i] = fmt.Sprint("old-", i)
	}
	f.in(func(tx *sql.Tx) {
		f.wantFresh(tx, ids, ids...)
		f.receive(tx, "held", "never", 0)
	})
	age := func() {
		mustExec(t, f.app, "update penstock_received set at = at - 3600000000")
		mustExec(t, f.app, "update penstock_heads set at = at - 3600000000")
	}
	age()
	f.in(func(tx *sql.Tx) { f.wantFresh(tx, ids[:1]) })
	f.must(f.store.SetInbox(t.Context(), "billing", time.Hour))
	for i := range 300 {
		f.in(func(tx *sql.Tx) { f.receive(tx, fmt.Sprint("young-", i), "", 0, fmt.Sprint("young-", i)) })
	}
	if left := scan[int](t, f.app, "select count(*) from penstock_received where id like 'old-%'"); left != 0 {
		t.Errorf("%d ids are left after the window", left)
	}
	f.in(func(tx *sql.Tx) {
		f.receive(tx, "held", "never", 0) // it is not forgotten as long as it is held
		due, err := f.inbox.Due(t.Context(), tx, 10)
		f.must(err)
		f.wantReleased(due, "held after the gap never")
		f.wantFresh(tx, []string{"young-0", "old-0"}, "old-0")
	})
	age()
	f.in(func(tx *sql.Tx) {
		f.receive(tx, "last", "", 0, "last")
		f.receive(tx, "l", "last", 0, "l")
	})
	if heads := scan[int](t, f.app, "select count(*) from penstock_heads"); heads != 1 {
		t.Errorf("%d heads, want that of k", heads)
	}
}

// A held message whose handler fails every time stops no other key.
func TestInboxProcessDuePastAFailure(t *testing.T) {
	t.Parallel()
	f := newInboxFixture(t)
	var done []string
	fail := errors.New("no")
	h := func(_ context.Context, _ *sql.Tx, m penstock.Released) error {
		if m.Key == "bad" {
			return fail
		}
		done = append(done, m.ID)
		return nil
	}
	for _, key := range []string{"bad", "a", "b"} {
		f.must(f.inbox.Process(t.Context(), f.app, received(key, key+"2", key+"1"), 0, h))
	}
	for range 2 {
		if _, err := f.inbox.ProcessDue(t.Context(), f.app, h); !errors.Is(err, fail) {
			t.Errorf("got %v, want the handler's error", err)
		}
		if slices.Sort(done); !slices.Equal(done, []string{"a2", "b2"}) {
			t.Errorf("processed %q, want a2 and b2", done)
		}
	}
	f.in(func(tx *sql.Tx) {
		due, err := f.inbox.Due(t.Context(), tx, 10)
		f.must(err)
		if len(due) != 1 || due[0].ID != "bad2" || due[0].Missing != "bad1" {
			t.Errorf("due are %v, want bad2 after bad1", due)
		}
	})
}

func TestInboxInOrder(t *testing.T) {
	t.Parallel()
	f := newInboxFixture(t)
	due := func(tx *sql.Tx, want ...string) {
		t.Helper()
		got, err := f.inbox.Due(t.Context(), tx, 10)
		f.must(err)
		f.wantReleased(got, want...)
	}
	f.in(func(tx *sql.Tx) {
		f.receive(tx, "1", "", time.Hour, "1")
		f.receive(tx, "4", "3", time.Hour)
		f.receive(tx, "3", "2", time.Hour)
		f.receive(tx, "4", "3", time.Hour)
		due(tx)
		f.receive(tx, "2", "1", time.Hour, "2", "3", "4")
		f.receive(tx, "2", "1", time.Hour)
	})
	f.in(func(tx *sql.Tx) {
		f.receive(tx, "8", "7", 0)
		f.receive(tx, "7", "6", time.Hour)
		due(tx, "7 after the gap 6", "8")
		f.receive(tx, "9", "8", time.Hour, "9")
		f.receive(tx, "x", "6", time.Hour, "x after the gap 6")
		f.receive(tx, "5", "4", time.Hour, "5 late")
		f.receive(tx, "6", "5", time.Hour, "6 late")
		f.receive(tx, "10", "x", time.Hour, "10")
	})
	f.in(func(tx *sql.Tx) { // a circle, which only a broken producer makes
		for _, m := range [][2]string{{"a", "c"}, {"b", "a"}, {"c", "b"}} {
			f.receive(tx, m[0], m[1], 0)
		}
		got, err := f.inbox.Due(t.Context(), tx, 10)
		f.must(err)
		if len(got) != 3 {
			t.Errorf("%d were released of a circle, want all three", len(got))
		}
	})
}

func TestInboxRefuses(t *testing.T) {
	t.Parallel()
	f := newInboxFixture(t)
	var field *penstock.FieldError
	f.in(func(tx *sql.Tx) {
		for _, id := range []string{"", strings.Repeat("x", 257), "a\x00"} {
			if _, err := f.inbox.First(t.Context(), tx, id); !errors.As(err, &field) {
				t.Errorf("First(%q): %v, want a FieldError", id, err)
			}
		}
		for _, wait := range []time.Duration{-1, 5 * 24 * time.Hour} {
			if _, err := f.inbox.InOrder(t.Context(), tx, received("k", "a", ""), wait); !errors.As(err, &field) {
				t.Errorf("a wait of %s: %v, want a FieldError", wait, err)
			}
		}
		if _, err := f.inbox.InOrder(t.Context(), tx, received("k", "a", "a"), 0); !errors.As(err, &field) {
			t.Errorf("its own predecessor: %v, want a FieldError", err)
		}
		if _, err := f.inbox.Due(t.Context(), tx, 0); !errors.As(err, &field) {
			t.Errorf("Due(0): %v, want a FieldError", err)
		}
		if _, err := sqlite.NewInbox("nobody").First(t.Context(), tx, "a"); !errors.Is(err, penstock.ErrNoInbox) {
			t.Errorf("without an inbox: %v, want ErrNoInbox", err)
		}
	})
	for name, got := range map[string]error{
		"no name":  f.store.CreateInbox(t.Context(), "", 0),
		"too long": f.store.CreateInbox(t.Context(), strings.Repeat("x", 49), 0),
		"a second": f.store.CreateInbox(t.Context(), "x", time.Second),
	} {
		if !errors.As(got, &field) {
			t.Errorf("%s: %v, want a FieldError", name, got)
		}
	}
	if err := f.store.CreateInbox(t.Context(), "billing", 0); !errors.Is(err, penstock.ErrInboxExists) {
		t.Errorf("CreateInbox: %v, want ErrInboxExists", err)
	}
	f.must(f.store.DropInbox(t.Context(), "billing"))
	for _, err := range []error{f.store.DropInbox(t.Context(), "billing"), f.store.SetInbox(t.Context(), "billing", time.Hour)} {
		if !errors.Is(err, penstock.ErrNoInbox) {
			t.Errorf("%v, want ErrNoInbox", err)
		}
	}
}

// Consumers in parallel get the messages of several keys shuffled and more than once, and
// fail at random. Each is processed once, and in its key's order.
func TestInboxInOrderUnderRandomUse(t *testing.T) {
	t.Parallel()
	f := newInboxFixture(t)
	t.Logf("PENSTOCK_SEED=%d", testseed.Seed())
	mustExec(t, f.app, "create table effects (n integer primary key, key text, place integer)")
	const keys, each = 6, 25
	r := testseed.New(t.Name(), 0)
	var todo []penstock.Message
	for k := range keys {
		for n := range each {
			m := received(fmt.Sprint(k), fmt.Sprintf("%d-%d", k, n), "")
			if n > 0 {
				m.Headers = map[string]string{penstock.HeaderPrevious: fmt.Sprintf("%d-%d", k, n-1)}
			}
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
		r := testseed.New(t.Name(), w+1)
		handle := func(ctx context.Context, tx *sql.Tx, m penstock.Released) error {
			_, err := tx.ExecContext(ctx, "insert into effects (key, place) values (?, ?)", m.Key, strings.TrimPrefix(m.ID, m.Key+"-"))
			if m.Gap || m.Late {
				t.Errorf("%s: gap %v, late %v", m.ID, m.Gap, m.Late)
			}
			if err == nil && r.IntN(8) == 0 {
				return errFails
			}
			return err
		}
		consumers.Go(func() {
			for m := range queue {
				switch err := f.inbox.Process(t.Context(), f.app, m, time.Hour, handle); {
				case errors.Is(err, errFails):
					queue <- m
					continue
				case err != nil:
					t.Error(err)
				}
				open.Done()
			}
		})
	}
	open.Wait()
	close(queue)
	consumers.Wait()
	for k := range keys {
		got := scan[string](t, f.app, "select group_concat(place) from (select place from effects where key = ? order by n)", fmt.Sprint(k))
		want := []string{}
		for n := range each {
			want = append(want, fmt.Sprint(n))
		}
		if got != strings.Join(want, ",") {
			t.Errorf("key %d was processed in the order %s", k, got)
		}
	}
	if n, err := f.inbox.ProcessDue(t.Context(), f.app, nil); n != 0 || err != nil {
		t.Errorf("ProcessDue: got %d and %v, want nothing", n, err)
	}
}

// A message whose id comes again is published once within the window, and once more after it.
func TestPublishOnceForgetsAfterTheWindow(t *testing.T) {
	t.Parallel()
	f := newInboxFixture(t)
	f.must(f.store.CreateOutbox(t.Context(), "again"))
	f.must(f.store.SetInbox(t.Context(), "billing", time.Hour))
	seen := 0
	src, err := f.store.Subscribe(t.Context(), driver.Subscribe{Outbox: "again", Subscription: "look", Holder: "test"})
	f.must(err)
	defer src.Close(t.Context())
	published := func(want int) {
		t.Helper()
		f.must(f.store.PublishOnce(t.Context(), "billing", "again", penstock.Message{ID: "a"}))
		b, err := src.Fetch(t.Context(), driver.Limit{Messages: 10, Bytes: 1 << 20})
		f.must(err)
		f.must(src.Settle(t.Context(), driver.Settled{Batch: b}))
		if seen += len(b.Messages); seen != want {
			t.Errorf("%d messages, want %d", seen, want)
		}
	}
	published(1)
	published(1)
	mustExec(t, f.app, "update penstock_received set at = at - 3600000001")
	published(2)
	published(2)
}
