package nats

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock/penstock"
)

// lookupTimeout bounds one request to JetStream's API.
const lookupTimeout = 2 * time.Second

// stream creates the configured stream before the first message, and again if it is gone.
type stream struct {
	ready atomic.Bool
	mu    sync.Mutex
}

func (s *Sink) ensureStream(ctx context.Context) error {
	c := s.cfg.CreateStream
	if c == nil || s.stream.ready.Load() {
		return nil
	}
	if !s.up.Load() {
		return s.unavailable(nats.ErrDisconnected)
	}
	s.stream.mu.Lock()
	defer s.stream.mu.Unlock()
	if s.stream.ready.Load() {
		return nil
	}
	js, err := jetstream.New(s.conn)
	if err != nil {
		return penstock.Unavailable(err)
	}
	patience := lookupTimeout
	if s.cfg.InProcess != nil { // Open asks once, and only a busy machine is in the way
		patience = 30 * time.Second
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	storage := jetstream.FileStorage
	if c.Storage == "memory" {
		storage = jetstream.MemoryStorage
	}
	_, err = js.CreateStream(ctx, jetstream.StreamConfig{
		Name: c.Name, Subjects: c.Subjects, Storage: storage, Replicas: c.Replicas, Duplicates: c.DuplicateWindow,
	})
	switch {
	case err == nil:
		s.log.Log(ctx, s.news(), "JetStream stream is there", "stream", c.Name, "subjects", c.Subjects)
	case errors.Is(err, jetstream.ErrStreamNameAlreadyInUse):
		s.log.Info("JetStream stream exists with another configuration, which is kept", "stream", c.Name)
	default:
		return penstock.Unavailable(penstock.WithHint(fmt.Errorf("cannot create the JetStream stream %s: %w", c.Name, err), "%s", streamStep(err)))
	}
	s.stream.ready.Store(true)
	return nil
}

func streamStep(err error) string {
	if api, ok := errors.AsType[*jetstream.APIError](err); ok && api.ErrorCode == 10065 {
		return "another stream stores some of create_stream.subjects: remove create_stream to use that one"
	}
	if errors.Is(err, jetstream.ErrJetStreamNotEnabled) || errors.Is(err, nats.ErrNoResponders) {
		return "turn JetStream on in the server, for the user's account too"
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return "JetStream does not answer: look at the load of its servers, and whether they have a leader"
	}
	return "create the stream by hand and remove create_stream, or correct it"
}

// explainSilence turns a missing answer into an error for the relay. If there is no stream for the
// subject, it is about the message. If there is one that does not answer, it is about the broker.
//
// A missing stream is not Permanent: it may be created any time, and the
// same message then goes through.
func (s *Sink) explainSilence(ctx context.Context, subject string, quiet *silence) error {
	if !s.up.Load() {
		return s.unavailable(nats.ErrDisconnected)
	}
	unasked := penstock.WithHint(fmt.Errorf("no JetStream stream answered for the subject %q: %w", subject, quiet), "check that a stream is bound to it")
	if s.mute.Load() {
		return unasked
	}
	js, err := jetstream.New(s.conn)
	if err != nil {
		return penstock.Unavailable(err)
	}
	ask, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	name, err := js.StreamNameBySubject(ask, subject)
	var api *jetstream.APIError
	switch {
	case err == nil:
		return penstock.Unavailable(penstock.WithHint(fmt.Errorf("JetStream stream %s does not answer: %w", name, quiet),
			"check that it has a leader and that its no_ack is off"))
	case errors.Is(err, jetstream.ErrStreamNotFound):
		s.stream.ready.Store(false)
		return penstock.WithHint(fmt.Errorf("no JetStream stream stores the subject %q", subject),
			"create one with `nats stream add`, or set create_stream; the message is sent then")
	case errors.Is(err, jetstream.ErrJetStreamNotEnabled), errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount), errors.Is(err, nats.ErrNoResponders):
		return penstock.Unavailable(penstock.WithHint(errors.New("JetStream is not enabled"), "turn it on in the server, for the user's account too"))
	case ctx.Err() != nil:
		return interrupted(ctx.Err())
	case errors.As(err, &api) && api.Code >= 500:
		return penstock.Unavailable(fmt.Errorf("JetStream at %s cannot say which stream stores %q: %w", s.servers, subject, err))
	case s.mute.Load():
		return unasked
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, nats.ErrTimeout):
		// No answer comes at all, though the connection looks healthy: it may hang, and a new one may
		// work.
		if err := s.conn.ForceReconnect(); err != nil {
			s.log.Warn("cannot reconnect to NATS", "servers", s.servers, "error", err)
		}
		return penstock.Unavailable(fmt.Errorf("JetStream at %s does not answer: %w", s.servers, quiet))
	}
	return unasked
}
