package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/test/testserver"
)

func TestStatus(t *testing.T) {
	for _, c := range []struct {
		name   string
		args   []string
		status int
	}{
		{"success", []string{"true"}, 0},
		{"failure", []string{"sh", "-c", "exit 7"}, 7},
		{"variables arrive", []string{"sh", "-c", `test "$GIVEN" = here`}, 0},
		{"killed", []string{"sh", "-c", "kill -KILL $$"}, 128 + 9},
	} {
		t.Run(c.name, func(t *testing.T) {
			status, err := run(c.args, []string{"GIVEN=here"}, nil)
			if err != nil || status != c.status {
				t.Errorf("status %d, %v, want %d", status, err, c.status)
			}
		})
	}
	if status, err := run([]string{"/no/such/command"}, nil, nil); err == nil || status != 127 {
		t.Errorf("no such command: status %d, %v", status, err)
	}
}

// A signal reaches the command and what the command has started; a second one
// cannot be ignored.
func TestSignals(t *testing.T) {
	for _, c := range []struct {
		name, trap string
		signals    int
		status     int
	}{
		{"one", "exit 3", 1, 3},
		{"ignored", "", 2, 128 + 9},
	} {
		t.Run(c.name, func(t *testing.T) {
			ready := filepath.Join(t.TempDir(), "ready")
			signals := make(chan os.Signal, 2)
			done := make(chan int, 1)
			// Short sleeps: a shell runs its trap when the command before it ends.
			script := "trap '" + c.trap + "' TERM; : >" + ready + "; while :; do sleep 0.05; done"
			go func() {
				status, _ := run([]string{"sh", "-c", script}, nil, signals)
				done <- status
			}()
			for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
				if _, err := os.Stat(ready); err == nil {
					break
				}
				if time.Now().After(deadline) {
					t.Fatal("the command did not start")
				}
			}
			for range c.signals {
				signals <- syscall.SIGTERM
			}
			if status := <-done; status != c.status {
				t.Errorf("status %d, want %d", status, c.status)
			}
		})
	}
}

func TestNamedServersAreNotStarted(t *testing.T) {
	t.Setenv(testserver.EnvPostgres, "postgres://elsewhere/db")
	t.Setenv(testserver.EnvRabbitMQ, "amqp://elsewhere/")
	t.Setenv(testserver.EnvMariaDB, "mysql://elsewhere/")
	env, stop, err := start(nil, false, nil)
	if err != nil || len(env) != 0 {
		t.Errorf("variables %q, %v; want none", env, err)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// An unknown name is refused: nothing would start, and every test that needs it would be skipped.
func TestChosen(t *testing.T) {
	for list, want := range map[string]string{"": "", "postgres": "postgres", "postgres,mariadb": "postgres mariadb"} {
		if names, err := chosen(list); err != nil || strings.Join(names, " ") != want {
			t.Errorf("%q: %q, %v, want %q", list, names, err, want)
		}
	}
	for _, list := range []string{"postgresql", "postgres,", "postgres mariadb", "postgres, mariadb"} {
		if names, err := chosen(list); err == nil || !strings.Contains(err.Error(), "name some of postgres, rabbitmq") {
			t.Errorf("%q: %q, %v, want an error", list, names, err)
		}
	}
}
