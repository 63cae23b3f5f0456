// Package natsserver runs a NATS server with JetStream inside the process, on file storage in one
// directory. It needs no installation and, unless asked to listen, no port: its clients connect
// through memory. It is separate from sink/nats, so a program with that sink does not contain a
// server.
package natsserver

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
	"github.com/penstock/penstock/sink/nats"
)

// MaxPayload is the largest message, headers included, that the server accepts: the content of one
// record of JetStream's file storage, minus the room for the record's own fields.
const MaxPayload = 32<<20 - 64<<10

// startTimeout bounds reading the data of an earlier run.
const startTimeout = 60 * time.Second

// Options are the server's part of a configuration.
type Options = nats.EmbeddedConfig

// Server is a running server.
type Server struct {
	srv  *server.Server
	lock *dirLock
}

// Start runs a server and returns once it accepts connections and its streams
// are loaded. The log, which may be nil, gets its warnings and errors, and the rest at
// debug level.
func Start(o Options, log *slog.Logger) (*Server, error) {
	if o.Dir == "" {
		return nil, &penstock.FieldError{Field: "dir", Problem: "is empty", Hint: "name the directory in which the embedded NATS server keeps its streams"}
	}
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return nil, fmt.Errorf("embedded NATS server: %w", err)
	}
	if err := o.Validate(); err != nil {
		return nil, err
	}
	host, port := listenAddress(o.Listen)
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
		// The process belongs to the caller, and so do its signals and standard error.
		NoSigs:                 true,
		DisableJetStreamBanner: true,
	})
	if err != nil {
		lock.release()
		return nil, fmt.Errorf("embedded NATS server: %w", err)
	}
	logger := newLogger(log)
	srv.SetLogger(logger, false, false)
	srv.Start()
	s := &Server{srv: srv, lock: lock}
	if err := s.awaitReady(logger); err != nil {
		s.stop()
		return nil, penstock.WithHint(err, "check that %s is writable and has free space, and that the listen address is free", dir)
	}
	return s, nil
}

// awaitReady returns when the server serves, or will not: it reports only to its log why it gave
// up.
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

// listenAddress splits an address that EmbeddedConfig.Validate has accepted.
func listenAddress(listen string) (host string, port int) {
	host, p, _ := net.SplitHostPort(listen)
	if port, _ = strconv.Atoi(p); port == 0 {
		port = server.RANDOM_PORT
	}
	return host, port
}

// InProcessConn makes the server usable with nats.InProcessServer.
func (s *Server) InProcessConn() (net.Conn, error) { return s.srv.InProcessConn() }

// ClientURL is the URL for other processes, or empty if none may connect.
func (s *Server) ClientURL() string {
	if a := s.srv.Addr(); a != nil {
		return "nats://" + a.String()
	}
	return ""
}

// Shutdown closes every connection, writes JetStream's buffers and releases the directory. If that
// takes longer than ctx, it returns ctx's error, and the server still stops. A second Shutdown
// does nothing.
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
