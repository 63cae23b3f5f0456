// Package redis adds messages to streams of Redis or Valkey. DESIGN.md describes when
// messages count as confirmed.
//
//	message          entry of the stream
//	Topic            stream (by the template stream), field penstock-topic
//	ID               field penstock-id
//	Key              field penstock-key, if there is one
//	CreatedAt        field penstock-created-at: RFC 3339, nanoseconds, UTC
//	Attempt          field penstock-attempt, from the second on
//	Headers          fields of the same name
//	Payload          field payload
//
// Fields hold any bytes. A stream does not deduplicate: consumers do, by penstock-id.
package redis

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/descriptor"
	"github.com/penstock/penstock/internal/gate"
	"github.com/penstock/penstock/internal/lines"
	"github.com/penstock/penstock/internal/template"
)

// Driver describes this sink for the list in internal/drivers.
var Driver = descriptor.Sink[Config]{
	Name: "redis", Usage: "redis://HOST", Schemes: []string{"redis", "rediss"},
	Parse: ParseURL,
	Open: descriptor.Opens(func(c Config, log *slog.Logger) (*Sink, error) {
		logging.Disable() // the relay reports failures; this is the whole program's, so Open leaves it alone
		return Open(c, log)
	}),
	// There is no binding for Redis. Fields of an entry are like Kafka's headers.
	Binding:  descriptor.Headers("redis", "ce_"),
	ReadBack: readBack,
	Reach:    descriptor.Reaches(Open, (*Sink).reach),
}

// Sink adds messages to streams. It is not a driver.InOrderSink: after a refused entry the server
// executes the commands behind it.
type Sink struct {
	cfg     Config
	stream  *template.Template
	xadd    []any // its options
	wait    []any // the command that confirms more than the server's answer
	options redis.Options
	log     *slog.Logger
	warn    sync.Once
	pool    lines.Pool[*line]
	gate    gate.Gate
}

var _ driver.Sink = (*Sink)(nil)

// Open checks the configuration. The server need not be up: Sends connect, and fail as Unavailable
// until that succeeds.
func Open(cfg Config, log *slog.Logger) (*Sink, error) {
	cfg.SetDefaults()
	o, err := cfg.options()
	if err := cmp.Or(cfg.Validate(), err); err != nil {
		return nil, fmt.Errorf("redis sink: %w", err)
	}
	o.PoolSize, o.PipelinePoolSize = 1, -1 // WAIT is about its connection
	o.ReadBufferSize, o.WriteBufferSize = redis.DefaultPipelineBufferSize, redis.DefaultPipelineBufferSize
	o.Protocol = 2                        // no pushed messages to look for at each answer
	o.MaxRetries, o.DialerRetries = -1, 1 // the relay sends again, in order
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout = cfg.ConnectTimeout, cfg.Timeout, cfg.Timeout
	o.ContextTimeoutEnabled, o.DisableIdentity = true, true
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	var xadd, wait []any
	if cfg.ExistingOnly {
		xadd = append(xadd, "NOMKSTREAM")
	}
	if cfg.MaxLength > 0 {
		xadd = append(xadd, "MAXLEN", "~", cfg.MaxLength)
	}
	if cfg.Fsync {
		wait = append(wait, "WAITAOF", 1, cfg.Replicas, cfg.WaitTimeout.Milliseconds())
	} else if cfg.Replicas > 0 {
		wait = append(wait, "WAIT", cfg.Replicas, cfg.WaitTimeout.Milliseconds())
	}
	stream, err := template.Parse(cfg.Stream)
	return &Sink{cfg: cfg, stream: stream, xadd: xadd, wait: wait, options: *o, log: cfg.TLS.Warned(log)}, err
}

// fieldPayload is the payload's field. No header may have this name.
const fieldPayload = "payload"

// Send adds the messages in one pipeline, and waits for the server's answers, and for its replicas
// and disks if that is configured.
//
// Unavailable: the server cannot be reached, takes no writes, is out of memory or loading, or too few
// replicas have the messages. Permanent: the message exceeds the server's limit, or has no stream.
// Unclassified: the stream does not exist (existing_only), is not a stream, or this user may not
// write to it.
func (s *Sink) Send(ctx context.Context, msgs []penstock.Message) []error {
	return s.gate.Send(ctx, msgs, errClosed, func(ctx context.Context, errs []error) {
		s.pool.Use(ctx, s.newLine, func(l *line) (broken bool) { return s.send(ctx, l, msgs, errs) })
	})
}

// send reports whether the line can no longer be used.
func (s *Sink) send(ctx context.Context, l *line, msgs []penstock.Message, errs []error) (broken bool) {
	limit, err := s.limit(ctx, l)
	if err != nil {
		copy(errs, driver.SendError(msgs, s.explain(ctx, err)))
		return true
	}
	pipe := l.client.Pipeline()
	defer l.commands.clear()
	added := make([]*redis.StringCmd, len(msgs))
	for i := range msgs {
		args, err := s.command(&l.commands, &msgs[i], limit)
		if errs[i] = err; err == nil {
			added[i] = redis.NewStringCmd(ctx, args...)
			_ = pipe.Process(ctx, added[i]) // only notes it
		}
	}
	var waited *redis.Cmd
	if s.wait != nil && pipe.Len() > 0 {
		waited = pipe.Do(ctx, s.wait...) // on the same connection, whose writes it is about
	}
	_, failed := pipe.Exec(ctx)
	var held error
	if waited != nil {
		held, broken = s.judgeWait(ctx, waited, failed), stale(waited.Err())
	}
	for i, cmd := range added {
		switch {
		case cmd == nil: // the message is refused already
		case cmd.Err() != nil:
			errs[i] = s.verdict(ctx, &msgs[i], cmd.Err())
			broken = broken || stale(cmd.Err())
		case cmd.Val() == "": // a login that is refused sets no command's error
			errs[i], broken = s.explain(ctx, cmp.Or(failed, errNoAnswer)), true
		default:
			errs[i] = held
		}
	}
	return broken
}

// command is XADD with its arguments.
func (s *Sink) command(c *commands, m *penstock.Message, limit int) ([]any, error) {
	stream, err := s.stream.Execute(m)
	_, taken := m.Headers[fieldPayload]
	switch {
	case err != nil:
		return nil, err
	case stream == "":
		return nil, penstock.Permanent(penstock.WithHint(fmt.Errorf("the name of the stream is empty"), "publish with a topic, or change the template stream"))
	case len(m.Payload) > limit:
		return nil, penstock.Permanent(penstock.WithHint(fmt.Errorf("the payload is %d bytes, more than the server's proto-max-bulk-len (%d)", len(m.Payload), limit),
			"raise it on the server, or set claim_check, which sends a reference"))
	case taken:
		return nil, penstock.Permanent(penstock.WithHint(fmt.Errorf("a header has the name %q, which is the payload's field", fieldPayload), "give it another name"))
	}
	return c.add(m, stream, s.xadd), nil
}

// judgeWait returns nil if the number of copies that cfg requires has the messages.
func (s *Sink) judgeWait(ctx context.Context, waited *redis.Cmd, failed error) error {
	counts, err := []int64{1, 0}, error(nil) // disks, replicas
	if s.cfg.Fsync {
		counts, err = waited.Int64Slice()
	} else {
		counts[1], err = waited.Int64()
	}
	switch {
	case err != nil || len(counts) != 2:
		return s.explain(ctx, cmp.Or(waited.Err(), failed, err, errNoAnswer))
	case counts[0] < 1:
		return penstock.Unavailable(fmt.Errorf("the Redis server at %s has not flushed the messages to its disk within %v", s.options.Addr, s.cfg.WaitTimeout))
	case counts[1] < int64(s.cfg.Replicas):
		return penstock.Unavailable(penstock.WithHint(fmt.Errorf("%d of %d replicas of Redis at %s have the messages after %v", counts[1], s.cfg.Replicas, s.options.Addr, s.cfg.WaitTimeout),
			"see INFO replication on the server; the relay sends the messages again"))
	}
	return nil
}

// Close waits for running Sends until ctx ends. Those that run longer end with an Unavailable error.
func (s *Sink) Close(ctx context.Context) error { return s.gate.CloseSink(ctx, "Redis", s.pool.Close) }

var errClosed = penstock.Unavailable(fmt.Errorf("redis sink: %w", penstock.ErrClosed))

// reach connects, logs in and asks whether the server takes writes.
func (s *Sink) reach(ctx context.Context) (err error) {
	s.pool.Use(ctx, s.newLine, func(l *line) (broken bool) {
		if _, err = s.limit(ctx, l); err == nil && l.replica {
			err = errors.New("READONLY it is a replica")
		}
		return err != nil
	})
	if err != nil {
		err = s.explain(ctx, err)
	}
	return err
}
