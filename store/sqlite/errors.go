package sqlite

import (
	"context"
	"errors"
	"fmt"
	"strings"

	driver "modernc.org/sqlite"
	code "modernc.org/sqlite/lib"

	"github.com/penstock/penstock"
)

// Errors that callers distinguish with errors.Is. After each of them nothing has
// changed and the same call may be tried again.
var (
	// ErrBusy: another connection wrote for longer than the busy timeout.
	ErrBusy = errors.New("the database is locked by another writer")
	// ErrFull: the disk or the quota of the file is full.
	ErrFull = errors.New("the database cannot grow")
	// ErrUnusable: the file cannot be opened, read or written, or is not a database.
	ErrUnusable = errors.New("the file cannot be used")
)

// isBusy reports whether err means that the lock is another connection's.
func isBusy(err error) bool {
	c, ok := resultCode(err)
	return ok && (c == code.SQLITE_BUSY || c == code.SQLITE_LOCKED)
}

// resultCode is SQLite's primary result code in err.
func resultCode(err error) (int, bool) {
	var e *driver.Error
	if !errors.As(err, &e) {
		return 0, false
	}
	return e.Code() & 0xff, true
}

// explain turns the driver's errors into ours, which name the next step. Others
// pass through.
func (s *Store) explain(err error) error {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	if s.guard.Closed.Load() {
		return penstock.ErrClosed
	}
	c, ok := resultCode(err)
	if !ok {
		return err
	}
	file, means, hint := s.path, ErrUnusable, ""
	switch c {
	case code.SQLITE_BUSY, code.SQLITE_LOCKED:
		return penstock.WithHint(fmt.Errorf("%s: %w after %s: %w", file, ErrBusy, s.busy, err),
			"try again; find the program that keeps a write transaction open, or raise the busy timeout")
	case code.SQLITE_FULL:
		means, hint = ErrFull, "free space on its disk; nothing is lost, and the call succeeds when it is tried again"
	case code.SQLITE_IOERR:
		hint = "look at the disk and the system's log; if the disk is full, free space and try again"
	case code.SQLITE_READONLY, code.SQLITE_PERM:
		hint = "let this user write to the file and to its directory, where SQLite puts " + base(file) + "-wal and " + base(file) + "-shm"
	case code.SQLITE_CANTOPEN:
		hint = "check that the file exists and that this user may read and write it and its directory"
	case code.SQLITE_NOTADB:
		hint = "give the path of a SQLite database, or of a file that does not exist yet"
	case code.SQLITE_CORRUPT:
		hint = "run PRAGMA integrity_check on a copy, and restore a backup if it reports damage"
	}
	if hint != "" {
		return penstock.WithHint(fmt.Errorf("%s: %w: %w", file, means, err), "%s", hint)
	}
	if noSuchTable(err) {
		return s.of().Unmigrated(fmt.Errorf("%s: %w: %w", file, penstock.ErrNotMigrated, err))
	}
	return fmt.Errorf("%s: %w", file, err)
}

// noSuchTable goes by the text, because the transaction may be of any driver.
func noSuchTable(err error) bool { return err != nil && strings.Contains(err.Error(), "no such table") }

// RefusesContent implements driver.ContentJudge: constraints and triggers.
func (s *Store) RefusesContent(err error) bool {
	c, _ := resultCode(err)
	return c == code.SQLITE_CONSTRAINT || c == code.SQLITE_TOOBIG || c == code.SQLITE_MISMATCH
}

func base(file string) string { return file[strings.LastIndexByte(file, '/')+1:] }
