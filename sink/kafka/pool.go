package kafka

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	"github.com/twmb/franz-go/pkg/sasl"

	"github.com/penstock/penstock"
)

// pool lends producers, each to one Send at a time.
type pool struct {
	cfg    *Config
	login  sasl.Mechanism // or nil
	log    *slog.Logger
	places chan struct{} // as many as may be in use
	done   chan struct{} // closed by stop

	mu    sync.Mutex
	all   map[*producer]struct{} // that have not ended
	spare []*producer            // of all; the last one is used first, so that few connections stay busy
}

func newPool(cfg *Config, login sasl.Mechanism, log *slog.Logger) *pool {
	return &pool{cfg: cfg, login: login, log: log, places: make(chan struct{}, cfg.Producers), done: make(chan struct{}), all: map[*producer]struct{}{}}
}

// get waits for a free place. The producer is the caller's until put.
func (l *pool) get(ctx context.Context) (*producer, error) {
	select {
	case l.places <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("all %d producers are busy: %w", l.cfg.Producers, context.Cause(ctx))
	case <-l.done:
		return nil, penstock.ErrClosed
	}
	p, err := l.take()
	if err != nil {
		<-l.places
	}
	return p, err
}

func (l *pool) take() (*producer, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for n := len(l.spare); n > 0; n = len(l.spare) {
		p := l.spare[n-1]
		l.spare = l.spare[:n-1]
		if !p.over() {
			return p, nil
		}
		delete(l.all, p)
	}
	select {
	case <-l.done:
		return nil, penstock.ErrClosed
	default:
	}
	dial, err := l.cfg.dialer()
	if err != nil {
		return nil, err
	}
	p, err := newProducer(l.cfg, dial, l.login, l.log)
	if err == nil {
		l.all[p] = struct{}{}
	}
	return p, err
}

func (l *pool) put(p *producer) {
	l.mu.Lock()
	if p.over() {
		delete(l.all, p)
	} else {
		l.spare = append(l.spare, p)
	}
	l.mu.Unlock()
	<-l.places
}

// stop ends all producers, including those in use, and waits until they are gone or ctx ends.
func (l *pool) stop(ctx context.Context) {
	close(l.done)
	l.mu.Lock()
	var all []*producer
	for p := range l.all {
		all = append(all, p)
		p.end(penstock.ErrClosed)
	}
	l.mu.Unlock()
	for _, p := range all {
		select {
		case <-p.closed:
		case <-ctx.Done():
			return
		}
	}
}
