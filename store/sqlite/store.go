package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	_ "modernc.org/sqlite" // see docs/decisions/0002-sqlite-driver.md

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/retry"
	"github.com/penstock/penstock/internal/schema"
	"github.com/penstock/penstock/internal/tables"
)

// Options for Open. The zero value is usable.
type Options struct {
	// BusyTimeout is how long to wait for another writer of the file, in this
	// process or another. After that a call returns ErrBusy. Default 5 s.
	BusyTimeout time.Duration

	// Log of Forward. Default slog.Default().
	Log *slog.Logger

	// pragmas for the writing connection, from tests.
	pragmas []string
}

// Store is a store in a SQLite file. Safe for concurrent use. Several processes may
// open the same file.
type Store struct {
	path    string
	busy    time.Duration
	log     *slog.Logger
	writer  *sql.DB // one connection
	readers *sql.DB // query_only

	replaced atomic.Int64 // see connector

	guard schema.Guard

	mu      sync.Mutex
	sizes   map[string]measurement // by outbox or queue, see size
	ledgers map[string]*ledger     // by outbox

	retries retry.Counter
	*outboxes
	*queues
	*inboxes
}

var _ driver.Store = (*Store)(nil)

// Open opens a SQLite file, given as a path or as sqlite:FILE. The file need not
// exist: Migrate creates it. Open returns an error for a file that is not a database
// or cannot be read.
func Open(ctx context.Context, path string, o Options) (*Store, error) {
	file, err := filePath(path)
	if err != nil {
		return nil, err
	}
	if o.BusyTimeout <= 0 {
		o.BusyTimeout = 5 * time.Second
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	s := &Store{path: file, busy: o.BusyTimeout, log: o.Log, sizes: map[string]measurement{}, ledgers: map[string]*ledger{}}
	s.guard = schema.Guard{Of: s.of, Version: s.SchemaVersion, Lacks: s.lacks}
	s.outboxes, s.queues, s.inboxes = tables.NewOutboxes(onTables{s}), tables.NewQueues(onTables{s}, nil, nil), tables.NewInboxes(onTables{s})
	s.writer = s.open(append(o.pragmas, "busy_timeout(0)", "journal_mode(wal)", "synchronous(full)", "journal_size_limit(67108864)"))
	s.writer.SetMaxOpenConns(1)
	s.readers = s.open([]string{fmt.Sprintf("busy_timeout(%d)", o.BusyTimeout.Milliseconds()), "query_only(1)"})
	s.readers.SetMaxOpenConns(maxReaders)
	s.readers.SetMaxIdleConns(maxReaders)
	if exists, err := s.exists(); err != nil || !exists {
		if err != nil {
			_ = s.Close()
		}
		return s, err
	}
	var tables int
	if err := s.readers.QueryRowContext(ctx, `select count(*) from sqlite_schema`).Scan(&tables); err != nil {
		err = s.explain(err)
		_ = s.Close()
		return nil, err
	}
	return s, nil
}

// maxReaders bounds the connections that read: each Fetch takes one for some
// milliseconds.
const maxReaders = 4

// filePath takes the file out of path, sqlite:FILE or, as other tools write it,
// sqlite://FILE.
func filePath(path string) (string, error) {
	file, isURL := strings.CutPrefix(path, "sqlite:")
	if isURL {
		file = strings.TrimPrefix(file, "//")
	}
	switch {
	case file == "":
		return "", penstock.WithHint(errors.New("no database file"), "give a path such as sqlite:app.db")
	case file == ":memory:" || strings.HasPrefix(file, "file:"):
		return "", penstock.WithHint(fmt.Errorf("%q is not a file", file), "give the path of a file, such as sqlite:app.db: relay and application share it")
	case strings.ContainsRune(file, 0):
		return "", &penstock.FieldError{Field: "database path", Problem: "has a NUL", Hint: "give the path of a file"}
	}
	return file, nil
}

// dsn is the driver's name for an existing file, with pragmas for each new
// connection. BEGIN is always BEGIN IMMEDIATE: a transaction that begins by
// reading and writes later fails when another one wrote in between.
func dsn(file, mode string, pragmas []string) string {
	var b strings.Builder
	b.WriteString("file:")
	b.WriteString(strings.NewReplacer("%", "%25", "?", "%3f", "#", "%23").Replace(file))
	b.WriteString("?mode=" + mode + "&_txlock=immediate")
	for _, p := range pragmas {
		b.WriteString("&_pragma=" + p)
	}
	return b.String()
}

func (s *Store) open(pragmas []string) *sql.DB {
	return sql.OpenDB(connector{s.path, dsn(s.path, "rw", pragmas), &s.replaced})
}

const driverName = "sqlite"

// OpenDB opens a pool for the application's own transactions, with the settings that
// Penstock's guarantees need: WAL, synchronous=FULL and BEGIN IMMEDIATE. With
// synchronous=FULL a commit survives a power cut, so no message is relayed that the
// database then loses. It creates the file if there is none, readable only by this
// user.
//
// The pool has one connection, because SQLite has one writer: taking turns in the
// pool is cheaper and fairer than polling for the file's lock. Raise SetMaxOpenConns
// to read during a transaction. An application can also open the file with any other
// driver.
func OpenDB(path string) (*sql.DB, error) {
	file, err := filePath(path)
	if err != nil {
		return nil, err
	}
	private(file)
	db, err := sql.Open(driverName, dsn(file, "rwc", []string{"busy_timeout(10000)", "journal_mode(wal)", "synchronous(full)", "foreign_keys(1)"}))
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	return db, nil
}

// private makes the file if there is none, for this user alone: SQLite would let others read it. Its -wal and -shm get the same mode.
// SQLite itself also finds errors. A file that is there must not be opened: closing it would end the locks of this process.
func private(file string) {
	if f, err := os.OpenFile(file, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600); err == nil {
		_ = f.Close()
	}
}

// exists reports whether there is a file. An error explains why there cannot be one.
func (s *Store) exists() (bool, error) {
	info, err := os.Stat(s.path)
	switch {
	case err == nil && info.IsDir():
		return false, penstock.WithHint(fmt.Errorf("%s is a directory", s.path), "give the path of a file in it")
	case err == nil:
		return true, nil
	case !errors.Is(err, os.ErrNotExist):
		return false, penstock.WithHint(err, "give a file that this user may read and write")
	}
	if _, err := os.Stat(filepath.Dir(s.path)); err != nil {
		return false, penstock.WithHint(err, "make the directory first")
	}
	return false, nil
}

// read runs fn on one connection and in one snapshot.
func (s *Store) read(ctx context.Context, fn func(ctx context.Context, tx *sql.Tx) error) error {
	if err := s.guard.Ready(ctx); err != nil {
		return err
	}
	tx, err := s.readers.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return s.explain(err)
	}
	defer func() { _ = tx.Rollback() }()
	return s.explain(fn(ctx, tx))
}

// write runs fn in one durable transaction. fn's context cannot be cancelled:
// the transactions here are short, and watching a context costs a goroutine per
// statement.
func (s *Store) write(ctx context.Context, fn func(ctx context.Context, tx *sql.Tx) error) error {
	if err := s.guard.Ready(ctx); err != nil {
		return err
	}
	return s.commit(ctx, fn)
}

// commit is write before the tables were checked.
func (s *Store) commit(ctx context.Context, fn func(ctx context.Context, tx *sql.Tx) error) error {
	conn, err := s.writer.Conn(ctx)
	if err != nil {
		return s.explain(err)
	}
	defer func() { _ = conn.Close() }()
	tx, err := begin(ctx, conn, s.busy)
	if err != nil {
		return s.explain(err)
	}
	if err := fn(context.WithoutCancel(ctx), tx); err != nil {
		_ = tx.Rollback()
		return s.explain(err)
	}
	return s.explain(tx.Commit())
}

// begin waits for its turn to write. SQLite has no queue of waiters; its own
// wait sleeps up to 100 ms between tries and so rarely gets in between
// producers that commit back to back. Trying every few milliseconds does.
func begin(ctx context.Context, conn *sql.Conn, patience time.Duration) (*sql.Tx, error) {
	var timer *time.Timer
	deadline := time.Now().Add(patience)
	for wait := 100 * time.Microsecond; ; wait = min(2*wait, 3*time.Millisecond) {
		tx, err := conn.BeginTx(context.WithoutCancel(ctx), nil)
		if !isBusy(err) || time.Now().After(deadline) {
			return tx, err
		}
		pause := wait/2 + rand.N(wait)
		if timer == nil {
			timer = time.NewTimer(pause)
			defer timer.Stop()
		} else {
			timer.Reset(pause)
		}
		select {
		case <-timer.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// Close closes the file. Sources of this store return ErrClosed; their leases end
// after their time. A second Close returns nil.
func (s *Store) Close() error {
	if s.guard.Closed.Swap(true) {
		return nil
	}
	return errors.Join(s.writer.Close(), s.readers.Close())
}
