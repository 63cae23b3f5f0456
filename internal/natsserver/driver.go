package natsserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"

	natsgo "github.com/nats-io/nats.go"

	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/descriptor"
	"github.com/penstock/penstock/sink/nats"
)

// Driver is that of sink/nats, with the server that the sink does not run.
var Driver = withServer(nats.Driver)

func withServer(d descriptor.Sink[nats.Config]) descriptor.Sink[nats.Config] {
	elsewhere, embedded := d.Open, descriptor.Opens(Open)
	d.Open = func(c nats.Config, log *slog.Logger) (driver.Sink, error) {
		if c.Embedded == nil {
			return elsewhere(c, log)
		}
		return embedded(c, log)
	}
	return d
}

// Sink is a sink and the server that it sends to.
type Sink struct {
	*nats.Sink
	server *Server
	closed atomic.Bool
}

// Open starts the server that cfg.Embedded describes, and the sink.
func Open(cfg nats.Config, log *slog.Logger) (*Sink, error) {
	cfg.SetDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("nats sink: %w", err)
	}
	server, err := Start(*cfg.Embedded, log)
	if err != nil {
		return nil, fmt.Errorf("nats sink: %w", err)
	}
	cfg.InProcess = server
	sink, err := nats.Open(cfg, log)
	if err != nil {
		server.stop()
		return nil, err
	}
	return &Sink{Sink: sink, server: server}, nil
}

// ClientURL is where consumers in other processes connect, empty without a listener.
func (s *Sink) ClientURL() string { return s.server.ClientURL() }

// InProcess is for consumers in this process, with nats.InProcessServer.
func (s *Sink) InProcess() natsgo.InProcessConnProvider { return s.server }

// Close closes the sink, then the server; a second Close does nothing.
func (s *Sink) Close(ctx context.Context) error {
	if s.closed.Swap(true) {
		return nil // the first still waits for Sends, which need the server
	}
	err := s.Sink.Close(ctx)
	if stopping := s.server.Shutdown(ctx); stopping != nil {
		err = errors.Join(err, fmt.Errorf("nats sink: the embedded server is still stopping: %w", stopping))
	}
	return err
}
