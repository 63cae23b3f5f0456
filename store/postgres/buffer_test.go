package postgres_test

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/tcpproxy"
	"github.com/penstock/penstock/internal/testseed"
	"github.com/penstock/penstock/internal/testserver"
	"github.com/penstock/penstock/store/postgres"
	"github.com/penstock/penstock/store/postgres/postgrestest"
	"github.com/penstock/penstock/store/queuetest"
	"github.com/penstock/penstock/store/storetest"
)

// little has every other message find the buffer full.
var little = penstock.BufferOptions{Rows: 2}

// What business transactions do in the suites they may do buffered.
func TestStoreBuffered(t *testing.T) {
	t.Parallel()
	open := func(t testing.TB) storetest.Instance {
		url := withOutbox(t, postgres.Options{})
		business := businessOn(t, url)
		i := openInstance(t, url, postgres.Options{})
		i.Begin = func(ctx context.Context) (storetest.Tx, error) { return beginBuffered(ctx, business) }
		return i
	}
	storetest.Run(t, storetest.Harness{Open: func(t testing.TB) storetest.Instance { return openInstance(t, freshDatabase(t), postgres.Options{}) },
		OpenCreated: open, Features: storetest.Features{ConcurrentWriters: true, Reclaim: true, Snapshots: true, Outage: true, Copy: true, Buffered: true}, OneOf: 8})
}

func TestQueueBuffered(t *testing.T) {
	t.Parallel()
	queuetest.Run(t, queuetest.Harness{
		OpenCreated: func(t testing.TB, order penstock.QueueOrder) queuetest.Instance {
			url := withQueue(t, postgres.Options{}, order)
			business := businessOn(t, url)
			i := queueInstanceOn(t, url, postgres.Options{})
			i.Begin = func(ctx context.Context) (queuetest.Tx, error) { return beginBuffered(ctx, business) }
			return i
		},
		Features: queuetest.Features{ConcurrentWriters: true, Reclaim: true, Snapshots: true, Release: true},
		OneOf:    8,
	})
}

func beginBuffered(ctx context.Context, business *pgxpool.Pool) (*enqueueTx, error) {
	tx, err := beginBy(ctx, business, "", func(conn *pgx.Conn) (pgx.Tx, error) { return postgres.NewBuffered(conn, little).Begin(ctx) })
	return &enqueueTx{tx}, err
}

// bufferFixture has a transaction and the buffer around it.
type bufferFixture struct {
	*jobsFixture
	raw  pgx.Tx // sees what has been written
	tx   *postgres.BufferedTx
	jobs *postgres.Queue
	n    int
}

func newBufferFixture(t *testing.T, opts penstock.BufferOptions) *bufferFixture {
	f := &bufferFixture{jobsFixture: newJobsFixture(t, penstock.FIFO), jobs: postgres.NewQueue("", "jobs")}
	f.begin(opts)
	return f
}

func (f *bufferFixture) begin(opts penstock.BufferOptions) {
	var err error
	f.raw, err = f.Conn.Begin(f.Ctx)
	f.Must(err)
	f.tx = postgres.Buffer(f.raw, opts)
}

// publish publishes so many messages, 1, 2, 3 …
func (f *bufferFixture) publish(tx postgres.PgxTx, n int) {
	f.Helper()
	for range n {
		f.n++
		f.Must(f.say(tx, fmt.Sprint(f.n)))
	}
}

func (f *bufferFixture) say(tx postgres.PgxTx, text string) error {
	return postgres.NewOutbox("", "orders").Publish(f.Ctx, tx, penstock.Message{Key: "k", Payload: []byte(text)})
}

// want compares what has been written, and why.
func (f *bufferFixture) want(written string, flushes map[penstock.FlushReason]int) {
	f.Helper()
	if got := f.written(f.raw); got != written {
		f.Errorf("written: %q, want %q", got, written)
	}
	if got := f.tx.Stats().Flushes; fmt.Sprint(got) != fmt.Sprint(flushes) {
		f.Errorf("flushes: %v, want %v", got, flushes)
	}
}

const writtenSQL = "select coalesce(string_agg(convert_from(payload, 'UTF8'), ' ' order by seq), '') from penstock.orders"

func (f *bufferFixture) written(q interface {
	QueryRow(context.Context, string, ...any) pgx.Row
}) (text string) {
	f.Helper()
	f.Must(q.QueryRow(f.Ctx, writtenSQL).Scan(&text))
	return text
}

type flushes = map[penstock.FlushReason]int

func TestBufferFlushesWhen(t *testing.T) {
	t.Parallel()
	t.Run("nothing asks for it", func(t *testing.T) {
		f := newBufferFixture(t, penstock.BufferOptions{})
		f.publish(f.tx, 2)
		f.want("", flushes{})
	})
	t.Run("it is full of rows", func(t *testing.T) {
		f := newBufferFixture(t, little)
		f.publish(f.tx, 5)
		f.want("1 2 3 4", flushes{penstock.FlushFull: 2})
	})
	t.Run("it is full of bytes", func(t *testing.T) {
		f := newBufferFixture(t, penstock.BufferOptions{Bytes: 3 * (&penstock.Message{Key: "k", Payload: []byte("1")}).Size()})
		f.publish(f.tx, 4)
		f.want("1 2 3", flushes{penstock.FlushFull: 1})
	})
	t.Run("a query reads", func(t *testing.T) {
		f := newBufferFixture(t, penstock.BufferOptions{AcrossWrites: true})
		f.publish(f.tx, 2)
		if got := f.written(f.tx); got != "1 2" {
			t.Errorf("the transaction reads %q of its own", got)
		}
		f.publish(f.tx, 1)
		rows, err := f.tx.Query(f.Ctx, writtenSQL)
		f.Must(err)
		if got, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[string]); err != nil || got != "1 2 3" {
			t.Errorf("the transaction reads %q of its own (%v)", got, err)
		}
		f.publish(f.tx, 1)
		var batch pgx.Batch
		batch.Queue("insert into penstock.orders (payload) values ('5')")
		f.Must(f.tx.SendBatch(f.Ctx, &batch).Close())
		f.want("1 2 3 4 5", flushes{penstock.FlushRead: 3})
	})
	t.Run("a statement's trigger may publish", func(t *testing.T) {
		f := newBufferFixture(t, penstock.BufferOptions{})
		f.Exec("create table shop (n int primary key)")
		f.Exec(`create function tell() returns trigger language plpgsql as $$ begin
			insert into penstock.orders (key, payload) values ('k', 'trigger'); return null; end $$`)
		f.Exec("create trigger tells after insert on shop for each row execute function tell()")
		f.publish(f.tx, 1)
		_, err := f.tx.Exec(f.Ctx, "insert into shop values (1)")
		f.Must(err)
		f.publish(f.tx, 1)
		_, err = f.tx.CopyFrom(f.Ctx, pgx.Identifier{"shop"}, []string{"n"}, pgx.CopyFromRows([][]any{{2}}))
		f.Must(err)
		f.want("1 trigger 2 trigger", flushes{penstock.FlushWrite: 2})
	})
	t.Run("a statement is none of those that may go ahead", func(t *testing.T) {
		f := newBufferFixture(t, penstock.BufferOptions{AcrossWrites: true})
		f.Exec("create table shop (n int primary key)")
		for _, sql := range []string{"insert into shop values (1)", " UPDATE shop set n = 2", "delete from shop"} {
			f.publish(f.tx, 1)
			_, err := f.tx.Exec(f.Ctx, sql)
			f.Must(err)
		}
		f.want("", flushes{})
		for _, sql := range []string{"select tell()", "with w as (select 1) insert into shop values (1)", "call tell()"} {
			f.publish(f.tx, 1)
			sp, err := f.tx.Begin(f.Ctx)
			f.Must(err)
			f.publish(sp.(*postgres.BufferedTx), 1)
			_, _ = sp.Exec(f.Ctx, sql)
			f.Must(sp.Rollback(f.Ctx))
		}
		f.want("1 2 3 4 6 8", flushes{penstock.FlushSavepoint: 3, penstock.FlushWrite: 3})
	})
	t.Run("a dedup key would be locked after a row", func(t *testing.T) {
		f := newBufferFixture(t, penstock.BufferOptions{AcrossWrites: true})
		f.Exec("create table shop (n int primary key)")
		_, err := f.tx.Enqueue(f.Ctx, f.jobs, penstock.NewJob{DedupKey: "once"})
		f.Must(err)
		_, err = f.tx.Exec(f.Ctx, "insert into shop values (1)")
		f.Must(err)
		if n := f.tx.Stats().Flushes[penstock.FlushWrite]; n != 1 {
			t.Errorf("flushed %d times before another lock is taken", n)
		}
	})
	t.Run("a savepoint begins or ends", func(t *testing.T) {
		f := newBufferFixture(t, penstock.BufferOptions{})
		f.publish(f.tx, 1)
		kept, err := f.tx.Begin(f.Ctx)
		f.Must(err)
		f.want("1", flushes{penstock.FlushSavepoint: 1})
		f.publish(kept.(*postgres.BufferedTx), 1)
		f.Must(kept.Commit(f.Ctx))
		f.want("1 2", flushes{penstock.FlushSavepoint: 2})
		gone, err := f.tx.Begin(f.Ctx)
		f.Must(err)
		f.publish(gone.(*postgres.BufferedTx), 1)
		f.Must(gone.(*postgres.BufferedTx).Flush(f.Ctx))
		f.publish(gone.(*postgres.BufferedTx), 1)
		f.Must(gone.Rollback(f.Ctx))
		f.publish(f.tx, 1)
		f.Must(f.tx.Commit(f.Ctx))
		if got := f.written(f.Conn); got != "1 2 5" {
			t.Errorf("committed %q", got)
		}
	})
	t.Run("ids are asked for", func(t *testing.T) {
		f := newBufferFixture(t, penstock.BufferOptions{})
		f.publish(f.tx, 1)
		later, err := f.tx.Enqueue(f.Ctx, f.jobs, texts("a", "b")...)
		f.Must(err)
		f.want("", flushes{})
		made, err := later.Enqueued(f.Ctx)
		f.Must(err)
		now, err := f.jobs.Enqueue(f.Ctx, f.tx, penstock.NewJob{Payload: []byte("c")})
		f.Must(err)
		if len(made) != 2 || len(now) != 1 || made[0].ID == 0 || made[1].ID <= made[0].ID || now[0].ID <= made[1].ID {
			t.Errorf("ids %v and %v", made, now)
		}
		f.want("1", flushes{penstock.FlushIDs: 2})
	})
	t.Run("the connection is handed out", func(t *testing.T) {
		f := newBufferFixture(t, penstock.BufferOptions{})
		f.publish(f.tx, 1)
		if got := f.written(f.tx.Conn()); got != "1" {
			t.Errorf("the connection reads %q", got)
		}
		f.publish(f.tx, 1)
		f.tx.LargeObjects()
		f.want("1 2", flushes{penstock.FlushOutside: 2})
	})
	t.Run("Flush says so", func(t *testing.T) {
		f := newBufferFixture(t, penstock.BufferOptions{})
		f.publish(f.tx, 1)
		f.Must(f.tx.Flush(f.Ctx))
		f.Must(f.tx.Flush(f.Ctx)) // there is nothing
		f.want("1", flushes{penstock.FlushAsked: 1})
	})
}

// Of a full buffer the program does not wait for the flush, whose context may end with the call.
func TestBufferFlushesBehindTheCaller(t *testing.T) {
	t.Parallel()
	f := newBufferFixture(t, little)
	f.Must(f.tx.Rollback(f.Ctx))
	pool, err := pgxpool.New(f.Ctx, f.URL)
	f.Must(err)
	defer pool.Close()
	blocker := f.Connect()
	_, err = blocker.Exec(f.Ctx, "begin; lock table penstock.orders")
	f.Must(err)
	begun, err := postgres.NewBuffered(pool, little).Begin(f.Ctx)
	f.Must(err)
	tx := begun.(*postgres.BufferedTx)
	orders := postgres.NewOutbox("", "orders")
	ctx, cancel := context.WithCancel(f.Ctx)
	f.Must(orders.Publish(ctx, tx, penstock.Message{Payload: []byte("1")}, penstock.Message{Payload: []byte("2")}, penstock.Message{Payload: []byte("3")}))
	cancel()
	_, err = blocker.Exec(f.Ctx, "commit")
	f.Must(err)
	f.Must(tx.Commit(f.Ctx))
	if got := f.written(f.Conn); got != "1 2 3" {
		t.Errorf("committed %q", got)
	}
	if n := pool.Stat().AcquiredConns(); n != 0 {
		t.Errorf("%d connections are not given back", n)
	}
	if err := tx.Commit(f.Ctx); !errors.Is(err, pgx.ErrTxClosed) {
		t.Errorf("a second Commit: %v", err)
	}
	if err := f.say(tx, "late"); !errors.Is(err, pgx.ErrTxClosed) {
		t.Errorf("Publish after Commit: %v", err)
	}
}

// A payload is the caller's again when Publish returns.
func TestBufferCopiesWhatItTakes(t *testing.T) {
	t.Parallel()
	f := newBufferFixture(t, penstock.BufferOptions{})
	payload, headers := []byte("a"), map[string]string{"h": "a"}
	f.Must(postgres.NewOutbox("", "orders").Publish(f.Ctx, f.tx, penstock.Message{Payload: payload, Headers: headers}))
	payload[0], headers["h"] = 'b', "b"
	f.Must(f.tx.Commit(f.Ctx))
	if n := f.Number("select count(*) from penstock.orders where payload = 'a' and headers->>'h' = 'a'"); n != 1 {
		t.Error("the message has changed with what it was made of")
	}
}

// turns counts how often a connection sends.
type turns struct {
	net.Conn
	n *atomic.Int64
}

func (c turns) Write(p []byte) (int, error) {
	c.n.Add(1)
	return c.Conn.Write(p)
}

func TestBufferCommitsInOneRoundTrip(t *testing.T) {
	t.Parallel()
	f := newJobsFixture(t, penstock.FIFO)
	config, err := pgx.ParseConfig(f.URL)
	f.Must(err)
	var sent atomic.Int64
	dial := config.DialFunc
	config.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dial(ctx, network, addr)
		return turns{c, &sent}, err
	}
	conn, err := pgx.ConnectConfig(f.Ctx, config)
	f.Must(err)
	defer func() { _ = conn.Close(f.Ctx) }()
	for round := range 2 { // the first prepares statements
		begun, err := postgres.NewBuffered(conn, penstock.BufferOptions{}).Begin(f.Ctx)
		f.Must(err)
		tx := begun.(*postgres.BufferedTx)
		for range 3 {
			f.Must(postgres.NewOutbox("", "orders").Publish(f.Ctx, tx, penstock.Message{Payload: []byte("x")}))
			_, err = tx.Enqueue(f.Ctx, postgres.NewQueue("", "jobs"), penstock.NewJob{})
			f.Must(err)
		}
		before := sent.Load()
		f.Must(tx.Commit(f.Ctx))
		if n := sent.Load() - before; round > 0 && n != 1 {
			t.Errorf("Commit with what is buffered takes %d round trips", n)
		}
		if got := tx.Stats(); got.Writes != 6 || got.Statements != 2 || got.Flushed() != 1 || got.Flushes[penstock.FlushCommit] != 1 || got.FlushTime <= 0 {
			t.Errorf("stats %+v", got)
		}
	}
}

// A write that fails late fails the transaction, no later than its commit, and says which it was.
func TestBufferFailsWithTheOperation(t *testing.T) {
	t.Parallel()
	nowhere := postgres.NewOutbox("", "nowhere")
	lost := func(f *bufferFixture, err error, operation string) {
		f.Helper()
		if !errors.Is(err, penstock.ErrNoOutbox) || !strings.Contains(err.Error(), "nowhere") || !strings.Contains(err.Error(), operation) {
			f.Errorf("got %v, want one that names %q", err, operation)
		}
	}
	fill := func(f *bufferFixture, tx postgres.PgxTx) {
		f.Helper()
		f.publish(tx, 2)
		f.Must(nowhere.Publish(f.Ctx, tx, penstock.Message{}))
		f.publish(tx, 1)
	}
	t.Run("at the commit", func(t *testing.T) {
		f := newBufferFixture(t, penstock.BufferOptions{})
		fill(f, f.tx)
		lost(f, f.tx.Commit(f.Ctx), "operation 3 ")
		if got := f.written(f.Conn); got != "" {
			t.Errorf("committed %q", got)
		}
	})
	t.Run("at the commit in one round trip", func(t *testing.T) {
		f := newBufferFixture(t, penstock.BufferOptions{})
		f.Must(f.tx.Rollback(f.Ctx))
		tx, err := postgres.NewBuffered(f.Conn, penstock.BufferOptions{}).Begin(f.Ctx)
		f.Must(err)
		fill(f, tx)
		lost(f, tx.Commit(f.Ctx), "operation 3 ")
		if got := f.written(f.Conn); got != "" || f.Conn.PgConn().TxStatus() != 'I' {
			t.Errorf("committed %q, and the connection is in state %c", got, f.Conn.PgConn().TxStatus())
		}
	})
	t.Run("behind the caller", func(t *testing.T) {
		f := newBufferFixture(t, little)
		f.Must(f.tx.Rollback(f.Ctx))
		tx, err := postgres.NewBuffered(f.Conn, penstock.BufferOptions{Rows: 3}).Begin(f.Ctx)
		f.Must(err)
		fill(f, tx) // the fourth begins the flush
		lost(f, tx.Commit(f.Ctx), "operation 3 ")
		if got := f.written(f.Conn); got != "" {
			t.Errorf("committed %q", got)
		}
	})
	t.Run("at everything that follows", func(t *testing.T) {
		f := newBufferFixture(t, penstock.BufferOptions{})
		fill(f, f.tx)
		later, err := f.tx.Enqueue(f.Ctx, f.jobs, penstock.NewJob{})
		f.Must(err)
		var text string
		lost(f, f.tx.QueryRow(f.Ctx, writtenSQL).Scan(&text), "operation 3 ")
		lost(f, f.say(f.tx, "more"), "operation 3 ")
		_, err = f.tx.Exec(f.Ctx, "select 1")
		lost(f, err, "operation 3 ")
		_, err = later.Enqueued(f.Ctx)
		lost(f, err, "operation 3 ")
		lost(f, f.tx.Commit(f.Ctx), "operation 3 ")
	})
	t.Run("in a savepoint, which takes it along", func(t *testing.T) {
		f := newBufferFixture(t, penstock.BufferOptions{})
		f.publish(f.tx, 1)
		sp, err := f.tx.Begin(f.Ctx)
		f.Must(err)
		fill(f, sp)
		lost(f, sp.Commit(f.Ctx), "operation 4 ")
		f.Must(sp.Rollback(f.Ctx))
		f.Must(f.say(f.tx, "after"))
		f.Must(f.tx.Commit(f.Ctx))
		if got := f.written(f.Conn); got != "1 after" {
			t.Errorf("committed %q", got)
		}
	})
	t.Run("where a row of many is refused", func(t *testing.T) {
		f := newBufferFixture(t, penstock.BufferOptions{})
		f.Exec("alter table penstock.orders add check (payload <> 'bad')")
		f.publish(f.tx, 1)
		f.Must(f.say(f.tx, "bad"))
		f.publish(f.tx, 1)
		if err := f.tx.Flush(f.Ctx); err == nil || !strings.Contains(err.Error(), "from 1 to 3") {
			t.Errorf("got %v", err)
		}
	})
	t.Run("not for one that cannot be carried", func(t *testing.T) {
		f := newBufferFixture(t, penstock.BufferOptions{})
		var field *penstock.FieldError
		if err := f.say(f.tx, string(make([]byte, penstock.MaxPayloadBytes+1))); !errors.As(err, &field) {
			t.Errorf("got %v", err)
		}
		f.publish(f.tx, 1)
		f.Must(f.tx.Commit(f.Ctx))
	})
	t.Run("or its jobs, if they were rolled back", func(t *testing.T) {
		f := newBufferFixture(t, penstock.BufferOptions{})
		later, err := f.tx.Enqueue(f.Ctx, f.jobs, penstock.NewJob{})
		f.Must(err)
		f.Must(f.tx.Rollback(f.Ctx))
		if _, err := later.Enqueued(f.Ctx); err == nil || !strings.Contains(err.Error(), "rolled back") {
			t.Errorf("got %v", err)
		}
	})
}

// What is published once, by an inbox, keeps its place among the rest, and a flush takes a statement for each run of either.
func TestBufferPublishesOnce(t *testing.T) {
	t.Parallel()
	f := newBufferFixture(t, penstock.BufferOptions{AcrossWrites: true})
	f.Must(f.store.CreateInbox(f.Ctx, "imports", 0))
	f.Exec("create table shop (n int primary key)")
	orders := postgres.NewOutbox("", "orders")
	say := func(tx postgres.PgxTx, o *postgres.Outbox, texts ...string) {
		f.Helper()
		for _, text := range texts {
			f.Must(o.Publish(f.Ctx, tx, penstock.Message{ID: text, Payload: []byte(text)}))
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
	_, err := f.tx.Exec(f.Ctx, "insert into shop values (1)") // whoever publishes an id waits for others who have
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
	f.Must(once.PublishSQL(f.Ctx, db, penstock.Message{ID: "b"}, penstock.Message{ID: "h", Payload: []byte("h")}, penstock.Message{Payload: []byte("i")}))
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
	say(f.tx, postgres.NewOutbox("", "refunds").Once("imports"), "l")
	say(f.tx, once, "l", "m") // the other outbox has l
	f.Must(f.tx.Commit(f.Ctx))
	if got := f.written(f.Conn); got != "a b h i j k m" {
		t.Errorf("of an inbox that two outboxes share: committed %q", got)
	}
}

// A seq is drawn when the buffer is written. Whoever has waited for another writer of his key by then comes after him,
// also with what he published before he waited.
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

// bufferWalk is one transaction that does what it is dealt.
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
		f.Must(postgres.NewOutbox("", w.name+"_"+string("aab"[which])).Publish(f.Ctx, tx,
			penstock.Message{Key: "k", Payload: []byte(text)}, penstock.Message{Payload: []byte(text + "'")}))
	case 6, 7, 8:
		job := penstock.NewJob{Payload: []byte(text), DedupKey: []string{"", "", "once"}[which]}
		if b, ok := tx.(*postgres.BufferedTx); ok {
			_, err := b.Enqueue(f.Ctx, postgres.NewQueue("", w.name+"_q"), job)
			f.Must(err)
		} else {
			_, err := postgres.NewQueue("", w.name+"_q").Enqueue(f.Ctx, tx, job)
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

// In each of the ways in which pgx speaks to the server, also those for poolers of connections.
func TestBufferInEveryExecMode(t *testing.T) {
	t.Parallel()
	f := newBufferFixture(t, penstock.BufferOptions{})
	f.Must(f.tx.Rollback(f.Ctx))
	f.Must(f.store.CreateInbox(f.Ctx, "imports", 0))
	orders := postgres.NewOutbox("", "orders")
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol} {
		t.Run(mode.String(), func(t *testing.T) {
			config, err := pgx.ParseConfig(f.URL)
			f.Must(err)
			config.DefaultQueryExecMode = mode
			conn, err := pgx.ConnectConfig(f.Ctx, config)
			f.Must(err)
			defer func() { _ = conn.Close(f.Ctx) }()
			begin := func() *postgres.BufferedTx {
				tx, err := postgres.NewBuffered(conn, penstock.BufferOptions{}).Begin(f.Ctx)
				f.Must(err)
				return tx.(*postgres.BufferedTx)
			}
			tx := begin()
			odd := penstock.Message{ID: mode.String(), Key: `k'"\`, Topic: "日本", Headers: map[string]string{`"`: `\'`}, Payload: []byte("a\x00\\'\xff")}
			f.Must(orders.Publish(f.Ctx, tx, odd, penstock.Message{}))
			f.Must(orders.Once("imports").Publish(f.Ctx, tx, odd, odd))
			later, err := tx.Enqueue(f.Ctx, f.jobs, texts("a", "b")...)
			f.Must(err)
			inner, err := tx.Begin(f.Ctx)
			f.Must(err)
			f.Must(f.say(inner, "gone"))
			f.Must(inner.Rollback(f.Ctx))
			f.Must(f.say(tx, "with the commit"))
			f.Must(tx.Commit(f.Ctx))
			if made, err := later.Enqueued(f.Ctx); err != nil || len(made) != 2 || made[1].ID <= made[0].ID {
				t.Errorf("jobs %v, %v", made, err)
			}
			if n := f.Number("select count(*) from penstock.orders where id = $1 and key = $2 and topic = $3 and headers = jsonb_build_object('\"', $4::text) and payload = $5", odd.ID, odd.Key, odd.Topic, `\'`, odd.Payload); n != 2 {
				t.Errorf("%d of 2 messages are as they were", n)
			}
			tx = begin()
			f.Must(f.say(tx, "never"))
			f.Must(postgres.NewOutbox("", "nowhere").Publish(f.Ctx, tx, penstock.Message{}))
			if err := tx.Commit(f.Ctx); !errors.Is(err, penstock.ErrNoOutbox) || conn.PgConn().TxStatus() != 'I' {
				t.Errorf("got %v, and the connection is in state %c", err, conn.PgConn().TxStatus())
			}
			f.Must(conn.Ping(f.Ctx))
			if n := f.Number("select count(*) from penstock.orders where payload in ('never', 'gone')"); n != 0 {
				t.Error("what was rolled back is there")
			}
		})
	}
}

// What the server puts off until the commit is an error of Commit, and nothing of the transaction stays.
func TestBufferCommitFailsLate(t *testing.T) {
	t.Parallel()
	f := newBufferFixture(t, penstock.BufferOptions{})
	f.Must(f.tx.Rollback(f.Ctx))
	f.Exec("create table shop (n int primary key, next int references shop deferrable initially deferred)")
	for name, begin := range map[string]func() (pgx.Tx, error){
		"its own": func() (pgx.Tx, error) { return postgres.NewBuffered(f.Conn, penstock.BufferOptions{}).Begin(f.Ctx) },
		"another's": func() (pgx.Tx, error) {
			tx, err := f.Conn.Begin(f.Ctx)
			return postgres.Buffer(tx, penstock.BufferOptions{}), err
		},
	} {
		tx, err := begin()
		f.Must(err)
		_, err = tx.Exec(f.Ctx, "insert into shop values (1, 2)")
		f.Must(err)
		f.Must(f.say(tx, "never"))
		var refused *pgconn.PgError
		if err := tx.Commit(f.Ctx); !errors.As(err, &refused) || refused.Code != "23503" {
			t.Errorf("%s: %v", name, err)
		}
		if got := f.written(f.Conn); got != "" || f.Conn.PgConn().TxStatus() != 'I' {
			t.Errorf("%s: committed %q, and the connection is in state %c", name, got, f.Conn.PgConn().TxStatus())
		}
	}
}

// Whoever loses the answer to COMMIT is told that it may have succeeded, and whoever knows better is told that.
func TestBufferSaysWhatItDoesNotKnow(t *testing.T) {
	t.Parallel()
	const doubt = "which may have succeeded"
	f := newJobsFixture(t, penstock.FIFO)
	proxy := tcpproxy.New(t, hostOf(t, f.URL))
	begin := func() pgx.Tx {
		conn, err := pgx.Connect(f.Ctx, through(t, f.URL, proxy.Addr()))
		f.Must(err)
		t.Cleanup(func() { _ = conn.Close(context.Background()) })
		tx, err := postgres.NewBuffered(conn, penstock.BufferOptions{}).Begin(f.Ctx)
		f.Must(err)
		return tx
	}
	publish := func(tx pgx.Tx, text string) {
		f.Must(postgres.NewOutbox("", "orders").Publish(f.Ctx, tx, penstock.Message{Payload: []byte(text)}))
	}
	written := func() (text string) {
		f.Must(f.Conn.QueryRow(f.Ctx, writtenSQL).Scan(&text))
		return text
	}
	for at, want := range map[tcpproxy.Moment]string{tcpproxy.BeforeRequest: "", tcpproxy.BeforeAnswer: "cut"} {
		tx := begin()
		sprung := proxy.Trap(at, func(said []byte) bool { return bytes.Contains(said, []byte("cut")) }) // with the rows, not when statements are prepared
		publish(tx, "cut")
		err := tx.Commit(f.Ctx)
		<-sprung
		if err == nil || !strings.Contains(err.Error(), doubt) {
			t.Errorf("cut at %d: got %v", at, err)
		}
		f.Eventually("what became of it", func() bool { return written() == want })
		f.Exec("delete from penstock.orders")
	}
	tx := begin()
	gone, cancel := context.WithCancel(f.Ctx)
	cancel()
	publish(tx, "never sent")
	if err := tx.Commit(gone); err == nil || strings.Contains(err.Error(), doubt) {
		t.Errorf("of what was never sent: %v", err)
	}
	f.Exec("alter table penstock.orders add check (payload <> 'bad')")
	tx = begin()
	publish(tx, "bad")
	if err := tx.Commit(f.Ctx); state(err) != "23514" || strings.Contains(err.Error(), doubt) {
		t.Errorf("of what was refused: %v", err)
	}

	tx = begin()
	pid := tx.Conn().PgConn().PID()
	holder := f.Connect()
	held, err := holder.Begin(f.Ctx)
	f.Must(err)
	_, err = held.Exec(f.Ctx, "lock table penstock.orders")
	f.Must(err)
	publish(tx, "given up")
	gone, cancel = context.WithCancel(f.Ctx)
	ended := make(chan error, 1)
	go func() { ended <- tx.Commit(gone) }()
	f.Eventually("COMMIT waits behind the INSERT", func() bool {
		return f.Number("select count(*) from pg_locks where pid = $1 and not granted", pid) == 1
	})
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), doubt) {
		t.Errorf("given up under way: %v", err)
	}
	f.Must(held.Rollback(f.Ctx))
}

// Whoever commits a buffered transaction while the server crashes is told the truth: what Commit returned nil for is there, and whole;
// what failed is not, unless the error says that it may be.
func TestBufferOnAServerThatCrashes(t *testing.T) {
	t.Parallel()
	t.Logf("PENSTOCK_SEED=%d", testseed.Seed())
	random := testseed.New(t.Name(), 0)
	server := testserver.StartPostgres(t)
	f := fixtureOn(t, server.URL, postgres.Options{})
	const writers, each = 8, 5
	var (
		outcomes sync.Map // by id: what Commit, or what came before it, returned
		commits  atomic.Int64
		all      sync.WaitGroup
		stop     = make(chan struct{})
		orders   = postgres.NewOutbox("", "orders")
	)
	for writer := range writers {
		all.Go(func() {
			var conn *pgx.Conn
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				if conn == nil || conn.IsClosed() {
					var err error
					if conn, err = pgx.Connect(f.Ctx, server.URL); err != nil {
						conn = nil // it is down
						continue
					}
				}
				id := fmt.Sprint(writer, "-", n)
				outcomes.Store(id, cmp.Or(pgx.BeginFunc(f.Ctx, postgres.NewBuffered(conn, penstock.BufferOptions{Rows: 2}), func(tx pgx.Tx) error {
					for range each {
						if err := orders.Publish(f.Ctx, tx, penstock.Message{Payload: []byte(id)}); err != nil {
							return err
						}
					}
					return nil
				}), errCommitted))
				commits.Add(1)
			}
		})
	}
	for range 3 {
		until := commits.Load() + int64(50+random.IntN(500))
		f.Eventually("so many more transactions", func() bool { return commits.Load() >= until })
		if err := cmp.Or(server.Kill(), server.Start()); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	all.Wait()
	rows, err := postgrestest.On(t, server.URL).Connect().Query(f.Ctx, "select convert_from(payload, 'UTF8'), count(*) from penstock.orders group by 1")
	f.Must(err)
	there := map[string]int{}
	var id string
	var n int
	_, err = pgx.ForEachRow(rows, []any{&id, &n}, func() error { there[id] = n; return nil })
	f.Must(err)
	failed, doubts := 0, 0
	outcomes.Range(func(id, outcome any) bool {
		n, err := there[id.(string)], outcome.(error)
		switch doubt := strings.Contains(err.Error(), "which may have succeeded"); {
		case err == errCommitted && n != each:
			t.Errorf("transaction %s was committed, and %d of its %d messages are there", id, n, each)
		case err != errCommitted && !doubt && n != 0:
			t.Errorf("transaction %s failed, %v, and %d of its messages are there", id, err, n)
		case n != 0 && n != each:
			t.Errorf("%d of %d messages of transaction %s are there", n, each, id)
		case doubt:
			doubts++
		case err != errCommitted:
			failed++
		}
		return true
	})
	t.Logf("%d transactions, %d failed, of %d nobody knew", commits.Load(), failed, doubts)
}

// errCommitted is in the place of none.
var errCommitted = errors.New("committed")
