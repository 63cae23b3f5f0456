package postgres_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/test/postgrestest"
	"github.com/penstock/penstock/internal/test/tcpproxy"
	"github.com/penstock/penstock/internal/test/testseed"
	"github.com/penstock/penstock/internal/test/testserver"
	"github.com/penstock/penstock/store/postgres"
)

// A write that fails late fails the transaction, no later than its commit, and shows which it was.
func TestBufferFailsWithTheOperation(t *testing.T) {
	t.Parallel()
	lost := func(f *bufferFixture, err error, operation string) {
		f.Helper()
		if !errors.Is(err, penstock.ErrNoOutbox) || !strings.Contains(err.Error(), "nowhere") || !strings.Contains(err.Error(), operation) {
			f.Errorf("got %v, want one that names %q", err, operation)
		}
	}
	fill := func(f *bufferFixture, tx pgx.Tx) {
		f.Helper()
		f.publish(tx, 2)
		f.Must(f.store.Outbox("nowhere").PublishTx(f.Ctx, tx, penstock.Message{}))
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

// A failure that the server puts off until the commit is an error of Commit, and nothing of the
// transaction stays.
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

// A caller that loses the answer to COMMIT gets an error that it may have succeeded, and one that can know the outcome
// gets the outcome.
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
		f.Must(f.store.Outbox("orders").PublishTx(f.Ctx, tx, penstock.Message{Payload: []byte(text)}))
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

// A caller that commits a buffered transaction while the server crashes is told the truth. A transaction for which Commit returned nil
// is there, and whole. One that failed is not, unless the error says that it may be.
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
		orders   = f.store.Outbox("orders")
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
						if err := orders.PublishTx(f.Ctx, tx, penstock.Message{Payload: []byte(id)}); err != nil {
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

// errCommitted stands for a nil error.
var errCommitted = errors.New("committed")
