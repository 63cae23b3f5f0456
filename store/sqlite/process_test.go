package sqlite_test

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/store/sqlite"
)

// Some promises are about processes. This test binary plays them: started with
// childEnv it does one job on one file and no test.
const childEnv = "PENSTOCK_SQLITE_TEST_CHILD"

// diesEnv is the line with which a child kills itself, however late the test comes to it.
const diesEnv = "PENSTOCK_SQLITE_TEST_DIES"

var said atomic.Int64 // lines

// say prints a line of a child.
func say(format string, args ...any) error {
	_, err := fmt.Printf(format+"\n", args...)
	if strconv.FormatInt(said.Add(1), 10) == os.Getenv(diesEnv) {
		self, _ := os.FindProcess(os.Getpid())
		return errors.Join(err, self.Kill())
	}
	return err
}

const (
	childMigrate = "migrate"
	childPublish = "publish" // until killed; prints each order's number once it is committed
	childWrite   = "write"   // one message
	childRelay   = "relay"   // until killed; prints what it delivers, before it is settled
	childEnqueue = "enqueue" // until killed; prints each order's number once it is committed
	childWork    = "work"    // until killed; prints what it begins and what has ended
	childWorkTx  = "worktx"  // until killed; prints what it begins
)

func TestMain(m *testing.M) {
	job, path, ok := strings.Cut(os.Getenv(childEnv), ":")
	if !ok {
		os.Exit(m.Run())
	}
	if err := runChild(context.Background(), job, path); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func runChild(ctx context.Context, job, path string) error {
	s, err := sqlite.Open(ctx, path, sqlite.Options{BusyTimeout: patience})
	if err != nil {
		return err
	}
	defer s.Close()
	switch job {
	case childMigrate:
		return s.Migrate(ctx)
	case childWrite:
		return s.Publish(ctx, "orders", penstock.Message{Payload: []byte("hello")})
	case childPublish:
		return publishOrders(ctx, s, path)
	case childRelay:
		return relayStubborn(ctx, s, func(m penstock.Message) error {
			return say("%s", m.Payload)
		})
	case childEnqueue:
		return enqueueOrders(ctx, s, path)
	case childWork:
		return workOrders(ctx, s)
	case childWorkTx:
		return workTxOrders(ctx, s)
	}
	return fmt.Errorf("no job %q", job)
}

// publishOrders makes orders, each with a message.
func publishOrders(ctx context.Context, s *sqlite.Store, path string) error {
	return makeOrders(ctx, path, "", func(tx *sql.Tx, i int, payload []byte) error {
		return s.Outbox("orders").PublishTx(ctx, tx, penstock.Message{Key: strconv.Itoa(i % 7), Payload: payload})
	})
}

// makeOrders makes business transactions as fast as it can: an order, and what write
// adds to it, every tenth rolled back. It prints those that are committed.
func makeOrders(ctx context.Context, path, said string, write func(tx *sql.Tx, i int, payload []byte) error) error {
	app, err := sqlite.OpenDB(path)
	if err != nil {
		return err
	}
	for i := 1; ; i++ {
		tx, err := app.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		var order int64
		if err := tx.QueryRow(`insert into orders (total) values (?) returning id`, i).Scan(&order); err != nil {
			return err
		}
		if err := write(tx, i, strconv.AppendInt(nil, order, 10)); err != nil {
			return err
		}
		if i%10 == 0 {
			err = tx.Rollback()
		} else if err = tx.Commit(); err == nil {
			_, err = fmt.Printf("%s%d\n", said, order)
		}
		if err != nil {
			return err
		}
	}
}

type child struct {
	cmd *exec.Cmd

	mu     sync.Mutex
	stderr bytes.Buffer
	stdout io.Reader
}

// start runs a job in a process that does not outlive the test.
func start(t testing.TB, job, path string, as ...func(*exec.Cmd)) *child {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := &child{cmd: exec.Command(self)}
	c.cmd.Env = append(os.Environ(), childEnv+"="+job+":"+path)
	c.cmd.Stderr = c
	for _, change := range as {
		change(c.cmd)
	}
	if c.stdout, err = c.cmd.StdoutPipe(); err != nil {
		t.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.cmd.Process.Kill(); _ = c.cmd.Wait() })
	return c
}

// diesWith has a child kill itself with its nth line.
func diesWith(n int) func(*exec.Cmd) {
	return func(cmd *exec.Cmd) { cmd.Env = append(cmd.Env, diesEnv+"="+strconv.Itoa(n)) }
}

func (c *child) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stderr.Write(p)
}

func (c *child) output() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stderr.String()
}

func (c *child) wait() error {
	_, _ = io.Copy(io.Discard, c.stdout)
	return c.cmd.Wait()
}

// killAfter kills -9 once the child has printed n lines, and returns all lines
// it managed to print.
func (c *child) killAfter(n int) (lines []string, err error) {
	out := bufio.NewScanner(c.stdout)
	for out.Scan() {
		if lines = append(lines, out.Text()); len(lines) == n {
			if err := c.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
				return lines, err
			}
		}
	}
	_ = c.cmd.Wait()
	if len(lines) < n {
		return lines, fmt.Errorf("the child ended by itself after %d lines: %s", len(lines), c.output())
	}
	return lines, nil
}
