package sqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/test/queuetest"
	"github.com/penstock/penstock/internal/test/storetest"
	"github.com/penstock/penstock/internal/test/testseed"
	"github.com/penstock/penstock/store/sqlite"
)

// little has every other message find the buffer full.
var little = penstock.BufferOptions{Rows: 2}

// What business transactions do in the suites they may do buffered.
func TestStoreBuffered(t *testing.T) {
	open := func(t testing.TB) storetest.Instance {
		i := openCreated(t)
		plain := i.Begin
		i.Begin = func(ctx context.Context) (storetest.Tx, error) {
			tx, err := plain(ctx)
			return buffered(tx.(businessTx), err)
		}
		return i
	}
	storetest.Run(t, storetest.Harness{Open: openInstance, OpenCreated: open, Features: storetest.Features{Reclaim: true, Snapshots: true, Copy: true, Buffered: true}, Only: storetest.Buffered})
}

func TestQueueBuffered(t *testing.T) {
	open := func(t testing.TB) queuetest.Instance {
		i := openQueueInstance(t)
		plain := i.Begin
		i.Begin = func(ctx context.Context) (queuetest.Tx, error) {
			tx, err := plain(ctx)
			return buffered(tx.(businessTx), err)
		}
		return i
	}
	queuetest.Run(t, queuetest.Harness{Open: open, Features: queuetest.Features{Reclaim: true, Snapshots: true}, Only: queuetest.Buffered})
}

func buffered(tx businessTx, err error) (businessTx, error) {
	if err == nil {
		tx.tx = sqlite.Buffer(tx.tx.(*sql.Tx), little)
	}
	return tx, err
}

// bufferFixture has a transaction and the buffer around it.
type bufferFixture struct {
	*testing.T
	app   *sql.DB
	raw   *sql.Tx // sees the rows that have been written
	tx    *sqlite.BufferedTx
	store *sqlite.Store
	n     int
}

func newBufferFixture(t *testing.T, opts penstock.BufferOptions) *bufferFixture {
	_, s, app := newFile(t, sqlite.Options{})
	f := &bufferFixture{T: t, store: s, app: app}
	f.must(s.CreateQueue(t.Context(), "jobs", penstock.FIFO))
	mustExec(t, app, "create table shop (n int)")
	var err error
	f.raw, err = app.BeginTx(t.Context(), nil)
	f.must(err)
	t.Cleanup(func() { _ = f.raw.Rollback() })
	f.tx = sqlite.Buffer(f.raw, opts)
	return f
}

func (f *bufferFixture) must(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

// publish publishes n messages, 1, 2, 3 …
func (f *bufferFixture) publish(n int) {
	f.Helper()
	for range n {
		f.n++
		f.must(f.store.Outbox("orders").PublishTx(f.Context(), f.tx, penstock.Message{Key: "k", Payload: fmt.Append(nil, f.n)}))
	}
}

const writtenSQL = "select coalesce(group_concat(cast(payload as text), ' '), '') from (select payload from penstock_outbox_orders order by seq)"

// want compares the written messages, and why they were written.
func (f *bufferFixture) want(written string, flushes map[penstock.FlushReason]int) {
	f.Helper()
	var got string
	f.must(f.raw.QueryRow(writtenSQL).Scan(&got))
	if got != written {
		f.Errorf("written: %q, want %q", got, written)
	}
	if got := f.tx.Stats().Flushes; fmt.Sprint(got) != fmt.Sprint(flushes) {
		f.Errorf("flushes: %v, want %v", got, flushes)
	}
}

func TestBufferFlushesWhen(t *testing.T) {
	type flushes = map[penstock.FlushReason]int
	for name, c := range map[string]struct {
		opts    penstock.BufferOptions
		do      func(f *bufferFixture)
		written string
		flushes flushes
	}{
		"nothing asks for it": {written: ""},
		"it is full":          {opts: little, do: func(f *bufferFixture) { f.publish(1) }, written: "1 2", flushes: flushes{penstock.FlushFull: 1}},
		"a query reads": {do: func(f *bufferFixture) {
			var got string
			if f.must(f.tx.QueryRowContext(f.Context(), writtenSQL).Scan(&got)); got != "1 2" {
				f.Errorf("the transaction reads %q of its own", got)
			}
			f.publish(1)
			rows, err := f.tx.QueryContext(f.Context(), "select 1")
			f.must(err)
			f.must(rows.Close())
		}, written: "1 2 3", flushes: flushes{penstock.FlushRead: 2}},
		"a statement may have a trigger": {do: func(f *bufferFixture) { f.exec("insert into shop values (1)") }, written: "1 2", flushes: flushes{penstock.FlushWrite: 1}},
		"a statement that may go ahead does": {opts: penstock.BufferOptions{AcrossWrites: true}, do: func(f *bufferFixture) {
			f.exec("insert into shop values (1)")
		}},
		"a savepoint takes what is in it and nothing else": {opts: penstock.BufferOptions{AcrossWrites: true}, do: func(f *bufferFixture) {
			f.exec("savepoint s")
			f.publish(1)
			f.exec("rollback to s")
			f.publish(1)
			f.exec("release s")
		}, written: "1 2 4", flushes: flushes{penstock.FlushWrite: 3}},
		"ids are asked for": {do: func(f *bufferFixture) {
			later, err := f.tx.Enqueue(f.Context(), f.store.Queue("jobs"), penstock.NewJob{}, penstock.NewJob{})
			f.must(err)
			made, err := later.Enqueued(f.Context())
			f.must(err)
			now, err := f.store.Queue("jobs").EnqueueTx(f.Context(), f.tx, penstock.NewJob{})
			f.must(err)
			if len(made) != 2 || len(now) != 1 || made[0].ID == 0 || made[1].ID <= made[0].ID || now[0].ID <= made[1].ID {
				f.Errorf("ids %v and %v", made, now)
			}
		}, written: "1 2", flushes: flushes{penstock.FlushIDs: 2}},
		"Flush says so": {do: func(f *bufferFixture) { f.must(f.tx.Flush(f.Context())) }, written: "1 2", flushes: flushes{penstock.FlushAsked: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newBufferFixture(t, c.opts)
			if f.publish(2); c.do != nil {
				c.do(f)
			}
			if c.flushes == nil {
				c.flushes = flushes{}
			}
			f.want(c.written, c.flushes)
		})
	}
}

func (f *bufferFixture) exec(query string) {
	f.Helper()
	_, err := f.tx.ExecContext(f.Context(), query)
	f.must(err)
}

// A write that fails late fails the transaction, which SQLite alone would commit without it.
func TestBufferFailsWithTheOperation(t *testing.T) {
	f := newBufferFixture(t, penstock.BufferOptions{})
	f.exec("insert into shop values (1)")
	f.publish(1)
	f.must(f.store.Outbox("nowhere").PublishTx(t.Context(), f.tx, penstock.Message{}))
	later, err := f.tx.Enqueue(t.Context(), f.store.Queue("jobs"), penstock.NewJob{})
	f.must(err)
	lost := func(err error) {
		t.Helper()
		if !errors.Is(err, penstock.ErrNoOutbox) || !strings.Contains(err.Error(), "nowhere") || !strings.Contains(err.Error(), "operation 2 ") {
			t.Errorf("got %v", err)
		}
	}
	lost(f.tx.Flush(t.Context()))
	if err := f.tx.QueryRowContext(t.Context(), "select 1").Scan(new(int)); !errors.Is(err, sql.ErrTxDone) {
		t.Errorf("a row of the transaction: %v", err)
	}
	_, err = f.tx.ExecContext(t.Context(), "insert into shop values (2)")
	lost(err)
	_, err = f.tx.QueryContext(t.Context(), "select 1")
	lost(err)
	_, err = later.Enqueued(t.Context())
	lost(err)
	lost(f.store.Outbox("orders").PublishTx(t.Context(), f.tx, penstock.Message{}))
	lost(f.tx.Commit())
	f.must(f.tx.Rollback())
	if err := f.tx.Commit(); !errors.Is(err, sql.ErrTxDone) {
		t.Errorf("Commit after Rollback: %v", err)
	}
	if n := scan[int](t, f.app, "select (select count(*) from shop) + (select count(*) from penstock_outbox_orders)"); n != 0 {
		t.Errorf("%d rows were committed", n)
	}
}

// A message that is published once, by an inbox, keeps its place among the rest, in a transaction of the application's with a buffer
// or without.
func TestPublishOnceInATransaction(t *testing.T) {
	for name, o := range map[string]*penstock.BufferOptions{"plain": nil, "buffered": {AcrossWrites: true}} {
		t.Run(name, func(t *testing.T) {
			_, s, app := newFile(t, sqlite.Options{})
			must := func(err error) {
				t.Helper()
				if err != nil {
					t.Fatal(err)
				}
			}
			must(s.CreateInbox(t.Context(), "imports", 0))
			begin := func() interface {
				sqlite.Tx
				Commit() error
				Rollback() error
			} {
				raw, err := app.BeginTx(t.Context(), nil)
				must(err)
				if o != nil {
					return sqlite.Buffer(raw, *o)
				}
				return raw
			}
			once := func(tx sqlite.Tx, ids ...string) {
				t.Helper()
				for _, id := range ids {
					must(s.Outbox("orders").Once("imports").PublishTx(t.Context(), tx, penstock.Message{ID: id, Payload: []byte(id)}))
				}
			}
			tx := begin()
			once(tx, "a")
			must(tx.Rollback())
			tx = begin()
			once(tx, "a", "b", "a")
			must(s.Outbox("orders").PublishTx(t.Context(), tx, penstock.Message{ID: "a", Payload: []byte("again")}))
			once(tx, "b", "c", "")
			if err := s.Outbox("orders").Once("imports").PublishTx(t.Context(), tx, penstock.Message{ID: "d"}, penstock.Message{ID: "\x00"}); err == nil {
				t.Error("what cannot be carried is taken")
			}
			must(tx.Commit())
			tx = begin()
			once(tx, "c", "d")
			must(tx.Commit())
			if got := scan[string](t, app, writtenSQL); got != "a b again c  d" {
				t.Errorf("published %q", got)
			}
			must(s.CreateOutbox(t.Context(), "other"))
			tx = begin()
			once(tx, "e")
			must(s.Outbox("other").Once("imports").PublishTx(t.Context(), tx, penstock.Message{ID: "f"}))
			once(tx, "f", "g") // the other outbox has f
			must(tx.Commit())
			if got := scan[string](t, app, writtenSQL); got != "a b again c  d e g" {
				t.Errorf("of an inbox that two outboxes share: published %q", got)
			}
			tx = begin()
			err := s.Outbox("orders").Once("nobody").PublishTx(t.Context(), tx, penstock.Message{})
			if o != nil {
				must(err)
				err = tx.Commit()
			}
			if !errors.Is(err, penstock.ErrNoInbox) {
				t.Errorf("got %v", err)
			}
			_ = tx.Rollback()
		})
	}
}

// Any interleaving leaves the same tables, buffered or not.
func TestBufferChangesNothing(t *testing.T) {
	_, s, app := newFile(t, sqlite.Options{})
	for _, err := range []error{s.CreateOutbox(t.Context(), "other"), s.CreateQueue(t.Context(), "jobs", penstock.FIFO), s.CreateInbox(t.Context(), "imports", 0)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	mustExec(t, app, "create table shop (n int)")
	t.Logf("PENSTOCK_SEED=%d", testseed.Seed())
	for part := range testseed.Steps(200) {
		opts := penstock.BufferOptions{Rows: 1 + part%5, AcrossWrites: part%2 == 0}
		var left [2]string
		for i := range left {
			raw, err := app.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			tx := businessTx{raw, s}
			if i == 1 {
				tx.tx = sqlite.Buffer(raw, opts)
			}
			left[i] = bufferWalk(t, tx, part) + bufferTables(t, raw)
			if err := raw.Rollback(); err != nil {
				t.Fatal(err)
			}
		}
		if left[0] != left[1] {
			t.Fatalf("walk %d (%+v)\nplain:\n%s\nbuffered:\n%s", part, opts, left[0], left[1])
		}
	}
}

// bufferWalk does what the seed deals and returns what was seen of it.
func bufferWalk(t *testing.T, tx businessTx, part int) (saw string) {
	r, depth := testseed.New("TestBufferChangesNothing", part), 0
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	exec := func(query string) { _, err := tx.tx.ExecContext(t.Context(), query); must(err) }
	for n := range 30 + r.IntN(30) {
		switch what, which := r.IntN(14), r.IntN(2); what {
		case 12, 13:
			once := penstock.Message{ID: []string{"", "a", "b", "c"}[r.IntN(4)], Payload: fmt.Append(nil, n)}
			must(tx.store.Outbox([]string{"orders", "other"}[which]).Once("imports").PublishTx(t.Context(), tx.tx, once))
		case 0, 1, 2, 3:
			must(tx.Publish(t.Context(), []string{"orders", "other"}[which], penstock.Message{Key: "k", Payload: fmt.Append(nil, n)}))
		case 4, 5:
			job := penstock.NewJob{Payload: fmt.Append(nil, n), DedupKey: []string{"", "once"}[which]}
			if b, ok := tx.tx.(*sqlite.BufferedTx); ok {
				_, err := b.Enqueue(t.Context(), tx.store.Queue("jobs"), job)
				must(err)
			} else {
				_, err := tx.Enqueue(t.Context(), "jobs", job)
				must(err)
			}
		case 6, 7:
			exec(fmt.Sprintf("insert into shop values (%d)", n))
		case 8:
			var rows int
			must(tx.tx.QueryRowContext(t.Context(), "select count(*) from penstock_outbox_orders").Scan(&rows))
			saw += fmt.Sprintln(rows)
		case 9:
			depth++
			exec(fmt.Sprintf("savepoint s%d", depth))
		case 10, 11:
			if depth > 0 {
				if what == 10 {
					exec(fmt.Sprintf("rollback to s%d", depth))
				}
				exec(fmt.Sprintf("release s%d", depth))
				depth--
			}
		}
	}
	if b, ok := tx.tx.(*sqlite.BufferedTx); ok {
		must(b.Flush(t.Context()))
	}
	return saw
}

// bufferTables is what is in them.
func bufferTables(t *testing.T, tx *sql.Tx) (text string) {
	for _, table := range []string{"penstock_outbox_orders", "penstock_outbox_other", "penstock_queue_jobs"} {
		var held string
		if err := tx.QueryRow("select coalesce(group_concat(coalesce(key, '') || ':' || cast(payload as text), ' '), '') from (select key, payload from " + table + " order by rowid)").Scan(&held); err != nil {
			t.Fatal(err)
		}
		text += held + "\n"
	}
	return text
}
