package testserver

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"
)

// StartPostgresWithClock is StartPostgres with a clock that the test sets.
func StartPostgresWithClock(tb testing.TB, conf ...string) *Postgres {
	tb.Helper()
	p, err := NewPostgresWithClock(conf...)
	return forTest(tb, p, err)
}

// NewPostgresWithClock is NewPostgres with a separate clock (SetClock): a preloaded library
// (clock/clock.c) answers when the server asks for the time. So a server's standbys also have one.
// A *MissingError without a C compiler.
func NewPostgresWithClock(conf ...string) (*Postgres, error) {
	if _, err := compiler(); err != nil {
		return nil, err
	}
	return initialised(true, conf)
}

// SetClock makes the server's clock differ from the machine's by that much from now
// on, in all its processes at once.
func (p *Postgres) SetClock(offset time.Duration) error {
	if !p.clock {
		return fmt.Errorf("%s has no clock of its own: start it with NewPostgresWithClock", p.name)
	}
	file, err := os.OpenFile(p.clockFile(), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	// A process may read it at any moment and must not find half of it.
	shared, err := syscall.Mmap(int(file.Fd()), 0, 8, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		return err
	}
	atomic.StoreInt64((*int64)(unsafe.Pointer(&shared[0])), offset.Nanoseconds())
	return syscall.Munmap(shared)
}

//go:embed clock/clock.c
var clockSource []byte

// makeClock compiles the library and has its file say 0.
func (p *Postgres) makeClock() error {
	cc, err := compiler()
	if err != nil {
		return err
	}
	compile := exec.Command(cc, "-shared", "-fPIC", "-O2", "-nostdlib", "-x", "c", "-", "-o", p.clockLibrary())
	compile.Stdin = bytes.NewReader(clockSource)
	if out, err := compile.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", cc, err, bytes.TrimSpace(out))
	}
	return errors.Join(
		os.WriteFile(p.clockFile(), make([]byte, 8), 0o644),
		// Whatever the umask: the server runs as another user.
		os.Chmod(p.clockFile(), 0o644), os.Chmod(p.clockLibrary(), 0o755))
}

func (p *Postgres) clockFile() string    { return filepath.Join(p.dir, "clock") }
func (p *Postgres) clockLibrary() string { return filepath.Join(p.dir, "clock.so") }

// clockEnv makes the server's processes ask the library.
func (p *Postgres) clockEnv() []string {
	if !p.clock {
		return nil
	}
	return []string{"LD_PRELOAD=" + p.clockLibrary(), "PENSTOCK_TEST_CLOCK=" + p.clockFile()}
}

// compiler finds a C compiler.
func compiler() (string, error) {
	missing := &MissingError{Server: "a C compiler, for a clock of PostgreSQL that a test sets", Package: "gcc", BinVar: envCompiler}
	if runtime.GOOS != "linux" {
		return "", missing
	}
	return find(missing, "cc")
}
