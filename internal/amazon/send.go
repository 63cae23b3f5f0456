package amazon

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/gate"
	"github.com/penstock/penstock/internal/template"
)

// Failure is the verdict on an entry that the service did not take.
type Failure struct {
	ID, Code, Message string
	SenderFault       bool
}

// Sender sends messages in batches. It is a driver.Sink.
//
// It is not a driver.InOrderSink: of a batch the service may refuse an entry and take those behind it. So
// the relay sends one message of a key at a time, and of one group one batch is under way.
type Sender struct {
	service string // for messages: SQS
	set     *Settings
	dest    *template.Template
	// batch sends up to ten entries in one request. taken are the ids of those that the service says it has.
	batch func(ctx context.Context, destination string, entries []Entry) (taken []string, failed []Failure, err error)
	idle  func() // closes idle connections
	slots chan struct{}
	gate  gate.Gate
}

// NewSender makes a Sender with valid settings. The destination is a template.
func NewSender(service, destination string, set *Settings, idle func(), batch func(context.Context, string, []Entry) ([]string, []Failure, error)) (*Sender, error) {
	dest, err := template.Parse(destination)
	if err != nil {
		return nil, err
	}
	return &Sender{service: service, set: set, dest: dest, batch: batch, idle: idle, slots: make(chan struct{}, set.Concurrency)}, nil
}

// Reach asks for the destination, if it is always the same.
func (s *Sender) Reach(ask func(to string) error) error {
	to, err := s.dest.Execute(&penstock.Message{})
	if err != nil || !s.dest.Fixed() {
		return nil
	}
	return s.Explain(to, ask(to))
}

// Send is driver.Sink's.
func (s *Sender) Send(ctx context.Context, msgs []penstock.Message) []error {
	closed := penstock.Unavailable(fmt.Errorf("%s sink: %w", s.service, penstock.ErrClosed))
	return s.gate.Send(ctx, msgs, closed, func(ctx context.Context, errs []error) {
		var running sync.WaitGroup
		for destination, batches := range s.batches(msgs, errs) {
			for _, entries := range batches {
				running.Go(func() { s.deliver(ctx, destination, entries, errs) })
			}
		}
		running.Wait()
	})
}

// batches sorts the messages by destination, into batches that are small enough.
func (s *Sender) batches(msgs []penstock.Message, errs []error) map[string][][]Entry {
	all, bytes := map[string][][]Entry{}, map[string]int{}
	for i := range msgs {
		// A value cannot name another account or host: these have slashes and colons.
		to, err := s.dest.Escape(&msgs[i], template.Hyphens(named))
		if err != nil {
			errs[i] = err
			continue
		}
		e, err := s.entry(&msgs[i], strings.HasSuffix(to, ".fifo"))
		if err != nil {
			errs[i] = err
			continue
		}
		e.index, e.ID = i, strconv.Itoa(i)
		list := all[to]
		if n := len(list); n == 0 || len(list[n-1]) == batchEntries || bytes[to]+e.bytes > s.set.MaxMessageBytes {
			list, bytes[to] = append(list, nil), 0
		}
		last := len(list) - 1
		list[last] = append(list[last], e)
		bytes[to] += e.bytes
		all[to] = list
	}
	return all
}

// deliver sends one batch and notes the verdict on each entry.
func (s *Sender) deliver(ctx context.Context, destination string, entries []Entry, errs []error) {
	select {
	case s.slots <- struct{}{}:
	case <-ctx.Done():
		s.setAll(entries, errs, s.gaveUp(ctx))
		return
	}
	timed, cancel := context.WithTimeout(ctx, s.set.Timeout)
	taken, failed, err := s.batch(timed, destination, entries)
	cancel()
	<-s.slots
	switch {
	case err == nil:
	case ctx.Err() != nil:
		s.setAll(entries, errs, s.gaveUp(ctx))
		return
	case len(entries) > 1 && aboutEntries(err):
		// The request was refused for one of them, and does not say for which.
		for i := range entries {
			s.deliver(ctx, destination, entries[i:i+1], errs)
		}
		return
	default:
		s.setAll(entries, errs, s.Explain(destination, err))
		return
	}
	answers := make(map[string]error, len(entries))
	for _, id := range taken {
		answers[id] = nil
	}
	for _, f := range failed {
		answers[f.ID] = s.verdict(f)
	}
	for _, e := range entries {
		answer, ok := answers[e.ID]
		if !ok {
			answer = penstock.Unavailable(fmt.Errorf("%s answered the batch, and not for this message", s.service))
		}
		errs[e.index] = answer
	}
}

func (s *Sender) setAll(entries []Entry, errs []error, err error) {
	for _, e := range entries {
		errs[e.index] = err
	}
}

// Close waits for running Sends until ctx ends. Those that run longer end with an Unavailable error.
func (s *Sender) Close(ctx context.Context) error { return s.gate.CloseSink(ctx, s.service, s.idle) }

func (s *Sender) gaveUp(ctx context.Context) error {
	return penstock.Unavailable(fmt.Errorf("%s has not confirmed the message in time: %w", s.service, context.Cause(ctx)))
}
