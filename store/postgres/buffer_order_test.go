package postgres_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/test/testseed"
	"github.com/penstock/penstock/store/postgres"
)

// A message that is published once, by an inbox, keeps its place among the rest, and a flush takes a statement for each run
// of either.
func TestBufferPublishesOnce(t *testing.T) {
	t.Parallel()
	f := newBufferFixture(t, penstock.BufferOptions{AcrossWrites: true})
	f.Must(f.store.CreateInbox(f.Ctx, "imports", 0))
	f.Exec("create table shop (n int primary key)")
	orders := f.store.Outbox("orders")
	say := func(tx pgx.Tx, o *postgres.Outbox, texts ...string) {
		f.Helper()
		for _, text := range texts {
			f.Must(o.PublishTx(f.Ctx, tx, penstock.Message{ID: text, Payload: []byte(text)}))
		}
	}
	once := orders.Once("imports")
	say(f.tx, orders, "a", "a")
	say(f.tx, once, "a", "b", "a", "b")
	say(f.tx, orders, "c")
	say(f.tx, once, "b", "d")
	f.Must(f.tx.Flush(f.Ctx))
	f.want("a a a b c d", flushes{penstock.FlushAsked: 1})
	if n := f.tx.Stats().Statements; n != 4 {
		t.Errorf("written by %d statements", n)
	}
	say(f.tx, once, "e")
	_, err := f.tx.Exec(f.Ctx, "insert into shop values (1)") // a transaction that publishes an id waits for others that have
	f.Must(err)
	f.want("a a a b c d e", flushes{penstock.FlushAsked: 1, penstock.FlushWrite: 1})
	f.Must(f.tx.Rollback(f.Ctx))

	f.begin(penstock.BufferOptions{})
	say(f.tx, once, "a", "b") // are new again
	f.Must(f.tx.Commit(f.Ctx))
	f.begin(penstock.BufferOptions{})
	say(f.tx, once, "a", "f")
	say(f.tx, orders.Once("nobody"), "g")
	if err := f.tx.Commit(f.Ctx); !errors.Is(err, penstock.ErrNoInbox) || !strings.Contains(err.Error(), "operation 3 ") {
		t.Errorf("got %v", err)
	}
	db, err := sql.Open("pgx", f.URL)
	f.Must(err)
	defer func() { _ = db.Close() }()
	f.Must(once.PublishSQL(f.Ctx, aloneSQL{db}, penstock.Message{ID: "b"}, penstock.Message{ID: "h", Payload: []byte("h")}, penstock.Message{Payload: []byte("i")}))
	tx, err := db.BeginTx(f.Ctx, nil)
	f.Must(err)
	buffered := postgres.BufferSQL(tx, penstock.BufferOptions{})
	f.Must(once.PublishSQL(f.Ctx, buffered, penstock.Message{ID: "h"}, penstock.Message{ID: "j", Payload: []byte("j")}))
	f.Must(buffered.Commit())
	if got := f.written(f.Conn); got != "a b h i j" {
		t.Errorf("committed %q", got)
	}
	f.Must(f.store.CreateOutbox(f.Ctx, "refunds"))
	f.begin(penstock.BufferOptions{})
	say(f.tx, once, "k")
	say(f.tx, f.store.Outbox("refunds").Once("imports"), "l")
	say(f.tx, once, "l", "m") // the other outbox has l
	f.Must(f.tx.Commit(f.Ctx))
	if got := f.written(f.Conn); got != "a b h i j k m" {
		t.Errorf("of an inbox that two outboxes share: committed %q", got)
	}
}

// A seq is drawn when the buffer is written. A writer that has waited for another writer of its key by then comes
// after it, also with messages that it published before it waited.
func TestBufferKeepsTheOrderOfTwoWriters(t *testing.T) {
	t.Parallel()
	f := newBufferFixture(t, penstock.BufferOptions{})
	f.Must(f.tx.Rollback(f.Ctx))
	f.Exec("create table account (id int primary key, n int)")
	f.Exec("insert into account values (1, 0)")
	lock := "update account set n = n + 1 where id = 1"
	begin := func() (pgx.Tx, *pgx.Conn) {
		conn := f.Connect()
		tx, err := postgres.NewBuffered(conn, penstock.BufferOptions{AcrossWrites: true}).Begin(f.Ctx)
		f.Must(err)
		return tx, conn
	}
	first, _ := begin()
	second, conn := begin()
	_, err := first.Exec(f.Ctx, lock)
	f.Must(err)
	f.Must(f.say(first, "first"))
	f.Must(f.say(second, "second before its lock"))
	locked := make(chan error, 1)
	go func() { _, err := second.Exec(f.Ctx, lock); locked <- err }()
	f.Eventually("the second waits for the first", func() bool {
		return f.Number("select count(*) from pg_locks where pid = $1 and not granted", conn.PgConn().PID()) > 0
	})
	f.Must(first.Commit(f.Ctx))
	f.Must(<-locked)
	f.Must(f.say(second, "second behind it"))
	f.Must(second.Commit(f.Ctx))
	if got := f.written(f.Conn); got != "first second before its lock second behind it" {
		t.Errorf("in order of seq: %q", got)
	}
}

// Any interleaving leaves the same tables, buffered or not.
func TestBufferChangesNothing(t *testing.T) {
	t.Parallel()
	f := newJobsFixture(t, penstock.FIFO)
	names := []string{"plain", "buffered"}
	for _, n := range names {
		f.Must(f.store.CreateOutbox(f.Ctx, n+"_a"))
		f.Must(f.store.CreateOutbox(f.Ctx, n+"_b"))
		f.Must(f.store.CreateQueue(f.Ctx, n+"_q", penstock.FIFO))
		f.Exec("create table " + n + " (n int)")
	}
	t.Logf("PENSTOCK_SEED=%d", testseed.Seed())
	for part := range testseed.Steps(80) {
		opts := penstock.BufferOptions{Rows: 1 + part%5, AcrossWrites: part%2 == 0}
		var said [2]string
		for i, n := range names {
			var db interface {
				Begin(context.Context) (pgx.Tx, error)
			} = f.Conn
			if i == 1 {
				db = postgres.NewBuffered(f.Conn, opts)
			}
			tx, err := db.Begin(f.Ctx)
			f.Must(err)
			w := &bufferWalk{f: f, name: n, txs: []pgx.Tx{tx}}
			for r := testseed.New("TestBufferChangesNothing", part); w.step(r.IntN(20), r.IntN(3)); {
			}
			said[i] = w.saw.String() + w.tables()
		}
		if said[0] != said[1] {
			t.Fatalf("walk %d (%+v)\nplain:\n%s\nbuffered:\n%s", part, opts, said[0], said[1])
		}
	}
}

// bufferWalk is one transaction that does the dealt operations.
type bufferWalk struct {
	f    *jobsFixture
	name string
	txs  []pgx.Tx // the last is the innermost savepoint
	n    int
	saw  strings.Builder
}

func (w *bufferWalk) step(what, which int) (more bool) {
	f, tx, last := w.f, w.txs[len(w.txs)-1], len(w.txs)-1
	w.n++
	switch text := fmt.Sprint(w.n); what {
	case 0, 1, 2, 3, 4, 5:
		f.Must(f.store.Outbox(w.name+"_"+string("aab"[which])).PublishTx(f.Ctx, tx,
			penstock.Message{Key: "k", Payload: []byte(text)}, penstock.Message{Payload: []byte(text + "'")}))
	case 6, 7, 8:
		job := penstock.NewJob{Payload: []byte(text), DedupKey: []string{"", "", "once"}[which]}
		if b, ok := tx.(*postgres.BufferedTx); ok {
			_, err := b.Enqueue(f.Ctx, f.store.Queue(w.name+"_q"), job)
			f.Must(err)
		} else {
			_, err := f.store.Queue(w.name+"_q").EnqueueTx(f.Ctx, tx, job)
			f.Must(err)
		}
	case 9, 10, 11:
		_, err := tx.Exec(f.Ctx, "insert into "+w.name+" values ($1)", w.n)
		f.Must(err)
	case 12:
		_, err := tx.Exec(f.Ctx, "do $$ begin insert into penstock."+w.name+"_b (payload) select 'sql' from "+w.name+" limit 1; end $$")
		f.Must(err)
	case 13:
		var n int
		f.Must(tx.QueryRow(f.Ctx, "select count(*) from penstock."+w.name+"_"+string("abq"[which])).Scan(&n))
		fmt.Fprintln(&w.saw, n)
	case 14, 15:
		if len(w.txs) < 4 {
			inner, err := tx.Begin(f.Ctx)
			f.Must(err)
			w.txs = append(w.txs, inner)
		}
	case 16, 17:
		if last > 0 {
			w.end(last, what == 16)
		}
	case 18: // from inside out, or all at once
		if which == 0 {
			w.end(0, true)
			return false
		}
	case 19:
		if last > 1 && which == 0 {
			w.end(last-1, false) // with the innermost
		}
	}
	if w.n > 60 {
		w.end(0, w.n%4 != 0)
		return false
	}
	return true
}

// end ends the transaction at depth, with those inside it.
func (w *bufferWalk) end(depth int, commit bool) {
	if commit {
		w.f.Must(w.txs[depth].Commit(w.f.Ctx))
	} else {
		w.f.Must(w.txs[depth].Rollback(w.f.Ctx))
	}
	w.txs = w.txs[:depth]
}

// tables are what is in them afterwards.
func (w *bufferWalk) tables() string {
	var text string
	for _, table := range []string{w.name + "_a", w.name + "_b", w.name + "_q"} {
		var held string
		w.f.Must(w.f.Conn.QueryRow(w.f.Ctx, "select coalesce(string_agg(concat(key, ':', convert_from(payload, 'UTF8')), ' ' order by seq), '') from penstock."+table).Scan(&held))
		text += held + "\n"
	}
	return text
}
