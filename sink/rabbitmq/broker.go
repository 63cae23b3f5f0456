package rabbitmq

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/penstock/penstock"
)

// broker keeps one connection, which is made when a Send needs it, and again when it is broken.
// While the broker cannot be reached, attempts are spaced out. In between, Sends get the last
// failure at once.
type broker struct {
	cfg     *Config
	log     *slog.Logger
	current shared[*connection]

	mu    sync.Mutex
	err   error         // of the last attempt
	pause time.Duration // after the last attempt
	until time.Time     // no attempt before
	quit  bool
	// giveUp ends the running attempt, if there is one.
	giveUp context.CancelFunc
}

const (
	firstPause = 50 * time.Millisecond
	maxPause   = 2 * time.Second
)

// connection returns one that works, or an Unavailable error.
func (b *broker) connection(ctx context.Context) (*connection, error) {
	c, err := b.current.get(ctx, b.connect)
	switch {
	case err == nil:
		return c, nil
	case ctx.Err() != nil:
		return nil, gaveUp(errors.Join(err, b.lastError()), "")
	}
	return nil, penstock.Unavailable(err)
}

func (b *broker) connect() (*connection, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	b.mu.Lock()
	err, quit, wait := b.err, b.quit, time.Until(b.until)
	b.giveUp = cancel
	b.mu.Unlock()
	switch {
	case quit:
		return nil, penstock.ErrClosed
	case wait > 0:
		return nil, err
	}
	c, err := connect(ctx, b.cfg, b.log)
	b.mu.Lock()
	defer b.mu.Unlock()
	if err != nil {
		if b.pause == 0 {
			b.log.Warn("RabbitMQ cannot be reached", "error", err)
		}
		b.pause = min(max(2*b.pause, firstPause), maxPause)
		b.until = time.Now().Add(b.pause/2 + rand.N(b.pause/2)) // to keep relays from coming all at once
		b.err = err
		return nil, err
	}
	b.pause, b.err = 0, nil
	if b.quit {
		c.abort()
		return nil, penstock.ErrClosed
	}
	return c, nil
}

func (b *broker) lastError() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.err
}

// stop closes the connection, gracefully if patience allows, and makes no other: a running attempt
// has ended when it returns.
func (b *broker) stop(patience time.Duration) {
	b.mu.Lock()
	b.quit = true
	if b.giveUp != nil {
		b.giveUp()
	}
	b.mu.Unlock()
	c, made := b.current.last()
	switch {
	case !made:
	case patience > 0:
		c.close(patience)
	default:
		c.abort()
	}
}
