package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/terminal"
	"github.com/penstock/penstock/internal/test/postgrestest"
)

// TestMain is penstock itself in a process that a test has started.
func TestMain(m *testing.M) {
	if os.Getenv("PENSTOCK_TEST_PROCESS") != "" {
		os.Exit(run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
	}
	os.Exit(postgrestest.Run(m))
}

// worker is a penstock work in a separate process.
type worker struct {
	*exec.Cmd
	log  *bufio.Reader
	read bytes.Buffer
}

func startWorker(t *testing.T, url string, args ...string) *worker {
	t.Helper()
	w := &worker{Cmd: exec.CommandContext(t.Context(), os.Args[0], append([]string{"work", "--database-url", url}, args...)...)}
	w.Env = append(os.Environ(), "PENSTOCK_TEST_PROCESS=1")
	stderr, err := w.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	w.log = bufio.NewReader(stderr)
	if err := w.Start(); err != nil {
		t.Fatal(err)
	}
	return w
}

// says waits until the log has a line with the text.
func (w *worker) says(t *testing.T, text string) {
	t.Helper()
	for {
		line, err := w.log.ReadString('\n')
		w.read.WriteString(line)
		if strings.Contains(line, text) {
			return
		}
		if err != nil {
			t.Fatalf("it ended without saying %q: %s", text, w.read.String())
		}
	}
}

func (w *worker) exitCode() int {
	_, _ = w.log.WriteTo(&w.read)
	_ = w.Wait()
	return w.ProcessState.ExitCode()
}

// sqliteQueue has one job in the queue mails.
func sqliteQueue(t *testing.T) (url string) {
	url = sqliteDatabase(t)
	must(t, "queue", "create", "mails", "--database-url", url)
	must(t, "enqueue", "mails", "x", "--database-url", url)
	return url
}

func TestFirstSignalDrains(t *testing.T) {
	url := sqliteQueue(t)
	line := newLifeline(t)
	w := startWorker(t, url, "mails", "--exec", fmt.Sprintf("echo running >&2; read line <%s; echo ended >&2", line.path))
	w.says(t, "running")
	if err := syscall.Kill(w.Process.Pid, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	w.says(t, "draining")
	if err := os.WriteFile(line.path, []byte("enough\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	w.says(t, "ended")
	if code := w.exitCode(); code != terminal.ExitOK || !strings.Contains(w.read.String(), "done=1") {
		t.Errorf("exit code %d: %s", code, w.read.String())
	}
}

func TestSecondSignalKillsTheCommand(t *testing.T) {
	url := sqliteQueue(t)
	line := newLifeline(t)
	w := startWorker(t, url, "mails", "--exec", line.command())
	line.up()
	if err := w.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	w.says(t, "draining")
	time.Sleep(time.Second) // an earlier signal counts as the first one
	if err := w.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if code := w.exitCode(); code != terminal.ExitInterrupted {
		t.Errorf("exit code %d: %s", code, w.read.String())
	}
	line.down()
	contains(t, must(t, "status", "--json", "--database-url", url), `"ready":1,"running":0`)
}

func TestDrainTimeoutKillsTheCommand(t *testing.T) {
	url := sqliteQueue(t)
	line := newLifeline(t)
	w := startWorker(t, url, "mails", "--drain-timeout", "100ms", "--exec", line.command())
	line.up()
	if err := w.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := w.exitCode(); code != terminal.ExitOK {
		t.Errorf("exit code %d: %s", code, w.read.String())
	}
	line.down()
	contains(t, must(t, "status", "--json", "--database-url", url), `"ready":1,"running":0`)
}

func TestCommandDiesWithItsWorker(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux has processes killed with the one that started them")
	}
	url := sqliteQueue(t)
	line := newLifeline(t)
	w := startWorker(t, url, "mails", "--exec", fmt.Sprintf("exec 3>%s; echo up >&3; exec sleep 1000", line.path))
	line.up()
	if err := w.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Fatal(err)
	}
	line.down()
	w.exitCode()
}
