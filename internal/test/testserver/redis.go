package testserver

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// Redis is a private Redis or Valkey that writes each change to its append-only file and flushes it
// before it answers.
type Redis struct {
	*server
	// Address of the server; the same after every Start.
	Address string
}

// StartRedis starts a server for this test alone. conf are lines of redis.conf; they win over the
// usual ones.
func StartRedis(tb testing.TB, conf ...string) *Redis {
	tb.Helper()
	r, err := NewRedis(conf...)
	return forTest(tb, r, err)
}

// NewRedis starts a server, which the caller closes.
func NewRedis(conf ...string) (*Redis, error) {
	program, err := redisServer()
	if err != nil {
		return nil, err
	}
	s, port, _, err := prepare("redis", "", syscall.SIGTERM, syscall.SIGKILL)
	if err != nil {
		return nil, err
	}
	s.URL = "redis://" + loopback(port)
	r := &Redis{server: s, Address: loopback(port)}
	file := filepath.Join(r.dir, "redis.conf")
	r.command = func() *exec.Cmd { return r.as(nil, program, file) }
	r.ready = func(ctx context.Context) error { // it answers errors too, of which LOADING is one
		answer := make([]byte, 5)
		if err := exchange(ctx, port, []byte("PING\r\n"), answer); err != nil {
			return err
		}
		if strings.HasPrefix(string(answer), "-LOAD") {
			return fmt.Errorf("it loads its data")
		}
		return nil
	}
	lines := append([]string{
		"bind 127.0.0.1", fmt.Sprintf("port %d", port), "dir " + r.dir, "appendonly yes", "appendfsync always", "save \"\"",
	}, conf...)
	return r, r.begin(os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"), 0o600))
}

// redisServer finds the program of Redis, or of Valkey, which speaks the same.
func redisServer() (string, error) {
	if err := wanted(); err != nil {
		return "", err
	}
	return find(&MissingError{Server: "Redis", Package: "redis-server", BinVar: "PATH"}, "redis-server", "valkey-server")
}
