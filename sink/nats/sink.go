package nats

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/nats-io/nats.go"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/gate"
	"github.com/penstock/penstock/internal/template"
)

// windowBytes limits the bytes of messages that wait for acknowledgement, and Config.MaxPending their number.
// JetStream queues at most 128 MiB per stream.
const windowBytes = 32 << 20

// Sink publishes to JetStream and waits for its acknowledgements. It is safe
// for concurrent use.
type Sink struct {
	cfg     Config
	log     *slog.Logger
	subject *template.Template
	servers string // for people: without passwords
	conn    *nats.Conn
	window  *window
	acks    *acks
	stream  stream
	dialer  dialer
	up      atomic.Bool // connected, as far as is known
	mute    atomic.Bool // the user may not use JetStream's API

	trouble   atomic.Pointer[error] // why there is no usable connection, as far as known
	known     chan struct{}         // closed when the first attempt to connect has ended
	knownOnce sync.Once

	gate gate.Gate
	quit chan struct{} // closed when Close stops waiting for Sends
}

var _ driver.Sink = (*Sink)(nil)

// Open starts the sink. Servers need not be up: the sink connects in the background,
// and Send fails with Unavailable errors until it is connected. Open returns an error
// if the configuration cannot be used or names a file that it cannot read. It also
// does if a server in this process does not create the stream.
func Open(cfg Config, log *slog.Logger) (*Sink, error) {
	cfg.SetDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("nats sink: %w", err)
	}
	if cfg.Embedded != nil && cfg.InProcess == nil {
		return nil, fmt.Errorf("nats sink: %w", field("embedded", "is set, and the sink alone runs no server",
			"start one with nats-server's package server, and set InProcess to it instead"))
	}
	log = cfg.TLS.Warned(log)
	subject, err := template.Parse(cfg.Subject)
	if err != nil {
		return nil, fmt.Errorf("nats sink: %w", err)
	}
	s := &Sink{
		cfg: cfg, log: log, subject: subject,
		window: newWindow(cfg.MaxPending, windowBytes),
		quit:   make(chan struct{}),
		known:  make(chan struct{}),
	}
	if err := s.connect(); err != nil {
		s.letGo()
		return nil, fmt.Errorf("nats sink: %w", err)
	}
	// Consumers may come before the first message, so the stream is created now if possible, and
	// otherwise with the first message.
	if err := s.ensureStream(context.Background()); err != nil {
		if cfg.InProcess != nil {
			s.letGo()
			return nil, fmt.Errorf("nats sink: %w", err)
		}
		log.Warn("the JetStream stream could not be created yet", "error", err)
	}
	return s, nil
}

var errClosed = penstock.Unavailable(fmt.Errorf("nats sink: %w", penstock.ErrClosed))

// Close waits for running Sends until ctx ends, then stops them and closes the
// connection.
func (s *Sink) Close(ctx context.Context) error {
	return s.gate.CloseSink(ctx, "NATS", func() {
		close(s.quit)
		s.acks.failAll(nil, errClosed)
		s.letGo()
	})
}

func (s *Sink) letGo() {
	if s.conn != nil {
		released := make(chan struct{})
		go s.dialer.freeWriter(released)
		s.conn.Close()
		close(released)
	}
}
