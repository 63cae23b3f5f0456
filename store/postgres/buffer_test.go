package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/test/queuetest"
	"github.com/penstock/penstock/internal/test/storetest"
	"github.com/penstock/penstock/store/postgres"
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
		OpenCreated: open, Features: storetest.Features{ConcurrentWriters: true, Reclaim: true, Snapshots: true, Outage: true, Copy: true, Buffered: true}, Only: storetest.Buffered})
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
		Features: queuetest.Features{ConcurrentWriters: true, Reclaim: true, Snapshots: true, Options: true, Unique: true, Barriers: true},
		Only:     queuetest.Buffered,
	})
}

func beginBuffered(ctx context.Context, business *pgxpool.Pool) (*enqueueTx, error) {
	tx, err := beginBy(ctx, business, "", func(conn *pgx.Conn) (pgx.Tx, error) { return postgres.NewBuffered(conn, little).Begin(ctx) })
	return &enqueueTx{tx}, err
}

// bufferFixture has a transaction and the buffer around it.
type bufferFixture struct {
	*jobsFixture
	raw  pgx.Tx // sees the rows that have been written
	tx   *postgres.BufferedTx
	jobs *postgres.Queue
	n    int
}

func newBufferFixture(t *testing.T, opts penstock.BufferOptions) *bufferFixture {
	f := &bufferFixture{jobsFixture: newJobsFixture(t, penstock.FIFO)}
	f.jobs = f.store.Queue("jobs")
	f.begin(opts)
	return f
}

func (f *bufferFixture) begin(opts penstock.BufferOptions) {
	var err error
	f.raw, err = f.Conn.Begin(f.Ctx)
	f.Must(err)
	f.tx = postgres.Buffer(f.raw, opts)
}

// publish publishes n messages, 1, 2, 3 …
func (f *bufferFixture) publish(tx pgx.Tx, n int) {
	f.Helper()
	for range n {
		f.n++
		f.Must(f.say(tx, fmt.Sprint(f.n)))
	}
}

func (f *bufferFixture) say(tx pgx.Tx, text string) error {
	return f.store.Outbox("orders").PublishTx(f.Ctx, tx, penstock.Message{Key: "k", Payload: []byte(text)})
}

// want compares the written messages, and why they were written.
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
		now, err := f.jobs.EnqueueTx(f.Ctx, f.tx, penstock.NewJob{Payload: []byte("c")})
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
	orders := f.store.Outbox("orders")
	ctx, cancel := context.WithCancel(f.Ctx)
	f.Must(orders.PublishTx(ctx, tx, penstock.Message{Payload: []byte("1")}, penstock.Message{Payload: []byte("2")}, penstock.Message{Payload: []byte("3")}))
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
	f.Must(f.store.Outbox("orders").PublishTx(f.Ctx, f.tx, penstock.Message{Payload: payload, Headers: headers}))
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
			f.Must(f.store.Outbox("orders").PublishTx(f.Ctx, tx, penstock.Message{Payload: []byte("x")}))
			_, err = tx.Enqueue(f.Ctx, f.store.Queue("jobs"), penstock.NewJob{})
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

// In each of the ways in which pgx speaks to the server, also those for poolers of connections.
func TestBufferInEveryExecMode(t *testing.T) {
	t.Parallel()
	f := newBufferFixture(t, penstock.BufferOptions{})
	f.Must(f.tx.Rollback(f.Ctx))
	f.Must(f.store.CreateInbox(f.Ctx, "imports", 0))
	orders := f.store.Outbox("orders")
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
			f.Must(orders.PublishTx(f.Ctx, tx, odd, penstock.Message{}))
			f.Must(orders.Once("imports").PublishTx(f.Ctx, tx, odd, odd))
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
			f.Must(f.store.Outbox("nowhere").PublishTx(f.Ctx, tx, penstock.Message{}))
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
