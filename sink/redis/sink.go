package redis

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/driver"
	"github.com/penstock/penstock/internal/gate"
	"github.com/penstock/penstock/internal/template"
)

// Sink adds messages to streams. It is not a driver.InOrderSink: after a refused entry the server
// executes the commands behind it.
type Sink struct {
	cfg    Config
	stream *template.Template
	server string // for people: without a password
	pool   *pool
	gate   gate.Gate
}

var _ driver.Sink = (*Sink)(nil)

// Open checks the configuration. The server need not be up: Sends connect, and fail as Unavailable
// until that succeeds.
func Open(cfg Config, log *slog.Logger) (*Sink, error) {
	cfg.SetDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("redis sink: %w", err)
	}
	options, err := cfg.server()
	if err != nil {
		return nil, fmt.Errorf("redis sink: %w", err)
	}
	stream, err := template.Parse(cfg.Stream)
	if err != nil {
		return nil, fmt.Errorf("redis sink: %w", err)
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	if cfg.TLS.DangerouslySkipCertificateCheck {
		log.Warn("tls.dangerously_skip_certificate_check is set: anyone on the network can pose as the server")
	}
	s := &Sink{cfg: cfg, stream: stream, server: options.Addr}
	s.pool, err = newPool(&s.cfg, options, log)
	if err != nil {
		return nil, fmt.Errorf("redis sink: %w", err)
	}
	return s, nil
}

// The fields of an entry. They win over headers of the same name in the message, except that a
// header with the name of the payload's field is refused.
const (
	fieldID        = "penstock-id"
	fieldKey       = "penstock-key"
	fieldTopic     = "penstock-topic"
	fieldCreatedAt = "penstock-created-at"
	fieldAttempt   = "penstock-attempt"
	fieldPayload   = "payload"
)

// Send adds the messages in one pipeline, and waits for the server's answers, and for its replicas
// and disks if that is configured.
//
// Unavailable: the server cannot be reached, takes no writes, is out of memory or loading, or too few
// replicas have the messages. Permanent: the message exceeds the server's limit, or has no stream.
// Unclassified: the stream does not exist (existing_only), is not a stream, or this user may not
// write to it.
func (s *Sink) Send(ctx context.Context, msgs []penstock.Message) []error {
	if len(msgs) == 0 {
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	pass := s.gate.Enter(cancel)
	if pass == nil {
		return driver.SendError(msgs, errClosed)
	}
	defer pass.Leave()

	l := s.pool.take()
	errs, broken := s.send(ctx, l, msgs)
	s.pool.Give(l, broken || l.wire.IsCut())
	for _, err := range errs {
		if err != nil {
			return errs
		}
	}
	return nil
}

// send also reports whether the line can no longer be used.
func (s *Sink) send(ctx context.Context, l *line, msgs []penstock.Message) (errs []error, broken bool) {
	defer context.AfterFunc(ctx, l.wire.Cut)()
	errs = make([]error, len(msgs))
	limit, err := l.limit(ctx)
	if err != nil {
		return driver.SendError(msgs, s.explain(ctx, err)), true
	}
	pipe, added := l.client.Pipeline(), make([]*redis.Cmd, len(msgs))
	for i := range msgs {
		args, err := s.command(&msgs[i], limit)
		if err != nil {
			errs[i] = err
			continue
		}
		added[i] = pipe.Do(ctx, args...)
	}
	if pipe.Len() == 0 {
		return errs, false
	}
	// On the same connection: WAIT is about the writes of the connection that asks.
	waited := s.wait(ctx, pipe)
	_, failed := pipe.Exec(ctx)
	var held error
	if waited != nil {
		held = s.judgeWait(ctx, waited, failed)
		broken = stale(waited.Err())
	}
	for i, cmd := range added {
		if cmd == nil {
			continue
		}
		_, added := cmd.Val().(string) // the id of the entry
		switch err := cmd.Err(); {
		case err != nil:
			errs[i] = s.verdict(ctx, &msgs[i], err)
			broken = broken || stale(err)
		case !added: // a login that is refused sets no command's error
			errs[i], broken = s.explain(ctx, cmp.Or(failed, errNoAnswer)), true
		default:
			errs[i] = held
		}
	}
	return errs, broken
}

// command is XADD with its arguments.
func (s *Sink) command(m *penstock.Message, limit int64) ([]any, error) {
	stream, err := s.stream.Execute(m)
	if err != nil {
		return nil, err
	}
	if stream == "" {
		return nil, penstock.Permanent(penstock.WithHint(fmt.Errorf("the name of the stream is empty"), "publish with a topic, or change the template stream"))
	}
	if len(m.Payload) > int(limit) {
		return nil, penstock.Permanent(penstock.WithHint(fmt.Errorf("the payload is %d bytes, more than the server's proto-max-bulk-len (%d)", len(m.Payload), limit),
			"raise it on the server, or publish a reference to the content"))
	}
	args := make([]any, 0, 16+2*len(m.Headers))
	args = append(args, "XADD", stream)
	if s.cfg.ExistingOnly {
		args = append(args, "NOMKSTREAM")
	}
	if s.cfg.MaxLength > 0 {
		args = append(args, "MAXLEN", "~", s.cfg.MaxLength)
	}
	args = append(args, "*", fieldID, m.ID, fieldTopic, m.Topic, fieldCreatedAt, m.CreatedAt.UTC().Format(time.RFC3339Nano))
	if m.Key != "" {
		args = append(args, fieldKey, m.Key)
	}
	if m.Attempt > 1 {
		args = append(args, fieldAttempt, strconv.Itoa(m.Attempt))
	}
	for name, value := range m.Headers {
		switch name {
		case fieldID, fieldTopic, fieldCreatedAt, fieldKey, fieldAttempt:
		case fieldPayload:
			return nil, penstock.Permanent(penstock.WithHint(fmt.Errorf("a header has the name %q, which is the payload's field", name), "give it another name"))
		default:
			args = append(args, name, value)
		}
	}
	payload := m.Payload
	if payload == nil {
		payload = []byte{}
	}
	return append(args, fieldPayload, payload), nil
}

// wait makes the requests that cfg requires in addition to the server's answer, or returns nil if
// there are none.
func (s *Sink) wait(ctx context.Context, pipe redis.Pipeliner) *redis.Cmd {
	ms := s.cfg.WaitTimeout.Milliseconds()
	switch {
	case s.cfg.Fsync:
		return pipe.Do(ctx, "WAITAOF", 1, s.cfg.Replicas, ms)
	case s.cfg.Replicas > 0:
		return pipe.Do(ctx, "WAIT", s.cfg.Replicas, ms)
	}
	return nil
}

// judgeWait returns nil if the number of copies that cfg requires has the messages.
func (s *Sink) judgeWait(ctx context.Context, waited *redis.Cmd, failed error) error {
	if err := waited.Err(); err != nil {
		return s.explain(ctx, err)
	}
	var disks, replicas int64
	switch n := waited.Val().(type) {
	case int64:
		disks, replicas = 1, n
	case []any:
		if len(n) == 2 {
			disks, _ = n[0].(int64)
			replicas, _ = n[1].(int64)
		}
	default:
		return s.explain(ctx, cmp.Or(failed, errNoAnswer))
	}
	switch {
	case disks < 1:
		return penstock.Unavailable(fmt.Errorf("the Redis server at %s has not flushed the messages to its disk within %v", s.server, s.cfg.WaitTimeout))
	case replicas < int64(s.cfg.Replicas):
		return penstock.Unavailable(penstock.WithHint(fmt.Errorf("%d of %d replicas of Redis at %s have the messages after %v", replicas, s.cfg.Replicas, s.server, s.cfg.WaitTimeout),
			"see INFO replication on the server; the relay sends the messages again"))
	}
	return nil
}

// Close waits for running Sends until ctx ends. Those that run longer end with an Unavailable error.
func (s *Sink) Close(ctx context.Context) error { return s.gate.CloseSink(ctx, "Redis", s.pool.Close) }

var errClosed = penstock.Unavailable(fmt.Errorf("redis sink: %w", penstock.ErrClosed))
