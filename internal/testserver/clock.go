package testserver

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// StartPostgresWithClock is StartPostgres with a clock that the test sets.
func StartPostgresWithClock(tb testing.TB, conf ...string) *Postgres {
	tb.Helper()
	p, err := NewPostgresWithClock(conf...)
	need(tb, err)
	tb.Cleanup(func() { closeAfter(tb, p.server) })
	return p
}

// NewPostgresWithClock is NewPostgres with a clock of its own (SetClock), which
// libfaketime gives it: the library answers when the server asks for the time. So a
// server's standbys have one, too. A *MissingError if it is not installed.
func NewPostgresWithClock(conf ...string) (*Postgres, error) {
	library, err := fakeClock()
	if err != nil {
		return nil, err
	}
	return initialised(library, conf)
}

// SetClock makes the server's clock differ from the machine's by that much from now
// on, in all its processes at once.
func (p *Postgres) SetClock(offset time.Duration) error {
	if p.clock == "" {
		return fmt.Errorf("%s has no clock of its own: start it with NewPostgresWithClock", p.name)
	}
	// A process may read it at any moment and must not find half of it.
	half := p.clockFile() + ".new"
	if err := os.WriteFile(half, fmt.Appendf(nil, "%+.6f\n", offset.Seconds()), 0o644); err != nil {
		return err
	}
	if err := os.Chmod(half, 0o644); err != nil { // whatever the umask: the server runs as another user
		return err
	}
	return os.Rename(half, p.clockFile())
}

func (p *Postgres) clockFile() string { return filepath.Join(p.dir, "clock") }

// clockEnv makes the server's processes ask the library, which asks the file each
// time. What measures durations keeps its own clock, as on a machine whose clock is set.
func (p *Postgres) clockEnv() []string {
	if p.clock == "" {
		return nil
	}
	return []string{
		"LD_PRELOAD=" + p.clock,
		"FAKETIME_TIMESTAMP_FILE=" + p.clockFile(),
		"FAKETIME_NO_CACHE=1",
		"FAKETIME_DONT_FAKE_MONOTONIC=1",
		"FAKETIME_DISABLE_SHM=1", // else it leaves files in /dev/shm
	}
}

// fakeClock finds the library: the named one, else where Debian puts it.
func fakeClock() (string, error) {
	if path := os.Getenv(envFakeClock); path != "" {
		_, err := os.Stat(path)
		return path, err
	}
	found, _ := filepath.Glob("/usr/lib/*/faketime/libfaketime.so.1") // fails only for a bad pattern
	if len(found) == 0 {
		return "", &MissingError{Server: "libfaketime", Package: "libfaketime", BinVar: envFakeClock}
	}
	return found[0], nil
}
