// Package embedded runs a NATS server with JetStream inside the process, on
// file storage in one directory. It needs no installation and, unless asked
// to listen, no port: its clients connect through memory.
package embedded

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/penstock/penstock"
)

// MaxPayload is the largest message, headers included, that the server takes:
// what one record of JetStream's file storage can hold, less the room its own
// fields may need.
const MaxPayload = 32<<20 - 64<<10

// startTimeout bounds reading what an earlier run left in the directory.
const startTimeout = 60 * time.Second

// Options say where the server keeps its streams and who may reach it.
type Options struct {
	// Dir holds the streams. It is created if it does not exist; one server at a
	// time may use it.
	Dir string
	// Listen is the loopback address, host:port, on which other processes may
	// connect, without credentials; port 0 takes a free one. Empty: none may.
	Listen string
	// SyncAlways makes every write reach the disk before it is confirmed, so
	// that confirmed messages survive a power cut too. Without it the file system
	// decides when, at most two minutes later.
	SyncAlways bool
	// Log receives the server's warnings and errors, and the rest at debug
	// level. Default: nothing is logged.
	Log *slog.Logger
}

// Server is a running server.
type Server struct {
	srv  *server.Server
	lock *dirLock
}

// Start runs a server and returns once it accepts connections and its streams
// are loaded.
func Start(o Options) (*Server, error) {
	if o.Dir == "" {
		return nil, &penstock.FieldError{Field: "dir", Problem: "is empty", Hint: "name the directory in which the embedded NATS server keeps its streams"}
	}
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return nil, fmt.Errorf("embedded NATS server: %w", err)
	}
	host, port, err := listenAddress(o.Listen)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, penstock.WithHint(fmt.Errorf("embedded NATS server: %w", err), "choose a directory that this user may write to")
	}
	lock, err := lockDir(dir)
	if err != nil {
		return nil, err
	}
	srv, err := server.NewServer(&server.Options{
		ServerName: "penstock-embedded",
		DontListen: o.Listen == "",
		Host:       host,
		Port:       port,
		JetStream:  true,
		StoreDir:   dir,
		SyncAlways: o.SyncAlways,
		MaxPayload: MaxPayload,
		// A client's unread data, at least one message of the largest size.
		MaxPending: 2 * MaxPayload,
		// The process belongs to the caller: its signals and standard error too.
		NoSigs:                 true,
		DisableJetStreamBanner: true,
	})
	if err != nil {
		lock.release()
		return nil, fmt.Errorf("embedded NATS server: %w", err)
	}
	logger := newLogger(o.Log)
	srv.SetLogger(logger, false, false)
	srv.Start()
	s := &Server{srv: srv, lock: lock}
	if err := s.awaitReady(logger); err != nil {
		s.stop()
		return nil, penstock.WithHint(err, "check that %s is writable and has free space, and that the listen address is free", dir)
	}
	return s, nil
}

// awaitReady returns when the server serves, or will not: it tells only its log
// why it gave up.
func (s *Server) awaitReady(l *logger) error {
	for deadline := time.Now().Add(startTimeout); ; {
		ready := s.srv.ReadyForConnections(50 * time.Millisecond)
		if text := l.fatal.Load(); text != nil {
			return fmt.Errorf("embedded NATS server did not start: %s", *text)
		}
		if ready && s.srv.JetStreamEnabled() {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("embedded NATS server did not start within %v", startTimeout)
		}
	}
}

// listenAddress accepts only addresses that no other machine can reach,
// because the server asks nobody for a password.
func listenAddress(listen string) (host string, port int, err error) {
	if listen == "" {
		return "", 0, nil
	}
	bad := func(problem string) error {
		return &penstock.FieldError{Field: "listen", Problem: problem, Hint: "write host:port with a loopback host, as in 127.0.0.1:4222"}
	}
	host, p, err := net.SplitHostPort(listen)
	if err != nil {
		return "", 0, bad("is not host:port")
	}
	port, err = strconv.Atoi(p)
	if err != nil || port < 0 || port > 65535 {
		return "", 0, bad("has no usable port")
	}
	if port == 0 {
		port = server.RANDOM_PORT
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return "", 0, bad(fmt.Sprintf("is on %q, which other machines may reach; the embedded server has no passwords", host))
	}
	return host, port, nil
}

// CheckListen reports whether listen can be used as Options.Listen.
func CheckListen(listen string) error {
	_, _, err := listenAddress(listen)
	return err
}

// InProcessConn makes the server usable with nats.InProcessServer.
func (s *Server) InProcessConn() (net.Conn, error) { return s.srv.InProcessConn() }

// ClientURL is where other processes connect, empty if none may.
func (s *Server) ClientURL() string {
	if a := s.srv.Addr(); a != nil {
		return "nats://" + a.String()
	}
	return ""
}

// Shutdown closes every connection, writes what JetStream still buffers and
// gives the directory back. It returns ctx's error if that takes longer; the
// server still stops. A second Shutdown does nothing.
func (s *Server) Shutdown(ctx context.Context) error {
	stopped := make(chan struct{})
	go func() {
		s.stop()
		close(stopped)
	}()
	select {
	case <-stopped:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *Server) stop() {
	s.srv.Shutdown()
	s.srv.WaitForShutdown()
	s.lock.release()
}
