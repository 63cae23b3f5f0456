package systemtest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// ledger is a business table with a message for each row, and the messages that were received.
// Rows of a key count from 1.
type ledger struct {
	t        testing.TB
	database string // the URL to which the business connects
	outbox   string
	insert   string // of one message: key, payload

	keys []string

	mu        sync.Mutex
	arrivals  map[string][]receipt // by consumer
	attempted map[string]bool      // entries, whether they were committed or not
}

// receipt is a message as a consumer received it.
type receipt struct {
	id, key, entry string
}

// newLedger makes the table.
func newLedger(t testing.TB, database, outbox string) *ledger {
	t.Helper()
	l := &ledger{t: t, database: database, outbox: outbox, arrivals: map[string][]receipt{}, attempted: map[string]bool{}}
	for i := range 10 {
		l.keys = append(l.keys, fmt.Sprint("key ", i))
	}
	l.insert = fmt.Sprintf("insert into penstock.%s (key, topic, payload) values ($1, 'entry', convert_to($2, 'UTF8'))", outbox)
	execSQL(t, database, `
		create table ledger (entry text primary key, key text not null, n bigint not null, unique (key, n));
		create table ledger_key (key text primary key, n bigint not null)`)
	return l
}

// write commits n entries, one transaction each, over a separate connection. Their names begin
// with the given name, which makes those of two calls differ.
func (l *ledger) write(name string, n int) {
	l.t.Helper()
	ctx := context.WithoutCancel(l.t.Context())
	conn, err := l.connect(ctx)
	if err != nil {
		l.t.Fatal(err)
	}
	defer conn.Close(ctx)
	for i := range n {
		if err := l.one(ctx, conn, fmt.Sprintf("%s-%d", name, i), l.keys[i%len(l.keys)]); err != nil {
			l.t.Fatalf("writing an entry: %v", err)
		}
	}
}

// keepWriting commits entries over several connections until the returned function is called,
// whatever happens to the database meanwhile.
func (l *ledger) keepWriting(name string, connections int) (stop func()) {
	ctx, cancel := context.WithCancel(l.t.Context())
	var all sync.WaitGroup
	for c := range connections {
		all.Go(func() {
			var conn *pgx.Conn
			// The pace is a load and no condition: a consumer has to read everything afterwards.
			for i := 0; ctx.Err() == nil; i++ {
				time.Sleep(10 * time.Millisecond)
				var err error
				if conn == nil {
					if conn, err = l.connect(ctx); err != nil {
						conn = nil
						continue
					}
				}
				call, done := context.WithTimeout(context.WithoutCancel(ctx), patience)
				if err = l.one(call, conn, fmt.Sprintf("%s-%d-%d", name, c, i), l.keys[(c+i)%len(l.keys)]); err != nil {
					_ = conn.Close(call)
					conn = nil
				}
				done()
			}
			if conn != nil {
				_ = conn.Close(context.WithoutCancel(ctx))
			}
		})
	}
	return func() {
		cancel()
		all.Wait()
	}
}

// connect opens a session that any pooler can serve: without prepared statements.
func (l *ledger) connect(ctx context.Context) (*pgx.Conn, error) {
	config, err := pgx.ParseConfig(l.database)
	if err != nil {
		return nil, err
	}
	config.DefaultQueryExecMode = pgx.QueryExecModeExec
	return pgx.ConnectConfig(ctx, config)
}

// one is one business transaction.
func (l *ledger) one(ctx context.Context, conn *pgx.Conn, entry, key string) error {
	l.mu.Lock()
	l.attempted[entry] = true
	l.mu.Unlock()
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		var turn int64
		err := tx.QueryRow(ctx, `insert into ledger_key values ($1, 1) on conflict (key) do update set n = ledger_key.n + 1 returning n`, key).Scan(&turn)
		if err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "insert into ledger values ($1, $2, $3)", entry, key, turn); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, l.insert, key, entry)
		return err
	})
}

// vanished are the entries that were tried and are not in the table. They were rolled back, or
// committed without waiting for the disk and lost in a crash.
func (l *ledger) vanished(database string) map[string]bool {
	l.t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	gone := maps.Clone(l.attempted)
	for entry := range entriesOf(l.t, database) {
		delete(gone, entry)
	}
	return gone
}

// got notes a message that a consumer received.
func (l *ledger) got(consumer string, r receipt) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.arrivals[consumer] = append(l.arrivals[consumer], r)
}

// has reports whether each of the consumers got the entry.
func (l *ledger) has(entry string, consumers ...string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range consumers {
		if !slices.ContainsFunc(l.arrivals[c], func(r receipt) bool { return r.entry == entry }) {
			return false
		}
	}
	return true
}

// tally is the result of comparing the table with a consumer's messages.
type tally struct {
	committed, lost, duplicated, outOfOrder, strange int
	// again counts ids that two different messages had.
	again    int
	examples []string
}

func (c *tally) found(n *int, format string, args ...any) {
	*n++
	if len(c.examples) < 5 {
		c.examples = append(c.examples, fmt.Sprintf(format, args...))
	}
}

// tally compares the table at the URL with a consumer's messages. Entries of gone were committed
// and then lost by the database; their messages may have come.
func (l *ledger) tally(database, consumer string, gone map[string]bool) *tally {
	l.t.Helper()
	ctx := context.WithoutCancel(l.t.Context())
	conn, err := pgx.Connect(ctx, database)
	if err != nil {
		l.t.Fatal(err)
	}
	defer conn.Close(ctx)
	type place struct {
		key string
		n   int64
	}
	table := map[string]place{}
	rows, err := conn.Query(ctx, "select entry, key, n from ledger")
	if err != nil {
		l.t.Fatal(err)
	}
	var entry string
	var p place
	if _, err := pgx.ForEachRow(rows, []any{&entry, &p.key, &p.n}, func() error { table[entry] = p; return nil }); err != nil {
		l.t.Fatal(err)
	}

	c := &tally{committed: len(table)}
	seen, ids, latest := map[string]bool{}, map[string]string{}, map[string]int64{}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, a := range l.arrivals[consumer] {
		if other, known := ids[a.id]; known && other != a.entry {
			c.found(&c.again, "the id %s came with %s and with %s", a.id, other, a.entry)
		}
		ids[a.id] = a.entry
		p, there := table[a.entry]
		switch {
		case !there && gone[a.entry]:
		case !there || p.key != a.key:
			c.found(&c.strange, "%q came with key %q and was never committed so", a.entry, a.key)
		case seen[a.entry]:
			c.duplicated++
		case p.n < latest[p.key]:
			c.found(&c.outOfOrder, "%s, number %d of %s, came after number %d", a.entry, p.n, p.key, latest[p.key])
			seen[a.entry] = true
		default:
			seen[a.entry], latest[p.key] = true, p.n
		}
	}
	for _, entry := range slices.Sorted(maps.Keys(table)) {
		if !seen[entry] {
			c.found(&c.lost, "%s was committed and never came", entry)
		}
	}
	l.t.Logf("%s: %d committed, %d lost, %d duplicated, %d out of order, %d ids of two messages",
		consumer, c.committed, c.lost, c.duplicated, c.outOfOrder, c.again)
	return c
}

// mustBeSound fails the test unless everything came, at least once and in order.
func (l *ledger) mustBeSound(database, consumer string, gone map[string]bool) *tally {
	l.t.Helper()
	c := l.tally(database, consumer, gone)
	if c.committed == 0 || c.lost+c.outOfOrder+c.strange+c.again > 0 {
		l.t.Errorf("%s: of %d committed %d are lost, %d out of order, %d made up, %d ids belong to two messages: %q",
			consumer, c.committed, c.lost, c.outOfOrder, c.strange, c.again, c.examples)
	}
	return c
}
