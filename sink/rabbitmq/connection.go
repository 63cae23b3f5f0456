package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/penstock/penstock"
)

// connection is one connection to the broker and its channels. When it breaks it is replaced with
// all of them.
type connection struct {
	amqp     *amqp.Connection
	wire     *wire
	cfg      *Config
	frame    int // the largest, as agreed
	channels []shared[*channel]
	next     atomic.Uint32
	gone     chan struct{} // closed when the connection is
	lost     *amqp.Error   // why; nil if it was this side
	leaving  atomic.Bool   // it is this side

	mu      sync.Mutex
	blocked *blocked // not nil while the broker refuses to read
	lowest  uint16   // channel numbers from here on are or were in use
	free    []uint16 // those that are not any more
}

// Limits that the connection asks for, RabbitMQ's own defaults. The broker may lower them.
const (
	frameSize  = 128 << 10
	channelMax = 2047
)

// heartbeatsMissed, as the library counts them, make a connection dead.
const heartbeatsMissed = 3

// blocked is RabbitMQ's alarm: it is short of memory or disk and reads nothing more from
// connections that publish.
type blocked struct {
	reason string
	over   chan struct{}
}

// connect tries the hosts in random order, to keep many relays from all going to the first. Its
// error lists each failure.
func connect(ctx context.Context, cfg *Config, log *slog.Logger) (*connection, error) {
	uris, err := cfg.addresses()
	if err != nil {
		return nil, err
	}
	rand.Shuffle(len(uris), func(i, j int) { uris[i], uris[j] = uris[j], uris[i] })
	var failed error
	for _, uri := range uris {
		c, err := connectTo(ctx, uri, cfg, log)
		switch {
		case err == nil:
			return c, nil
		case failed == nil:
			failed = err
		default:
			failed = fmt.Errorf("%w; %w", failed, err)
		}
	}
	return nil, failed
}

// connectTo dials and logs in. Its errors hold no secret: the library's own do
// not quote the URL, and the URL is parsed before it comes here.
func connectTo(ctx context.Context, uri amqp.URI, cfg *Config, log *slog.Logger) (*connection, error) {
	tlsConfig, err := cfg.tlsConfig(uri)
	if err != nil {
		return nil, err
	}
	address := net.JoinHostPort(uri.Host, strconv.Itoa(uri.Port))
	deadline := time.Now().Add(cfg.ConnectTimeout)
	conn, err := dial(ctx, address, deadline, tlsConfig)
	if err != nil {
		return nil, explainDial(address, err)
	}
	w := newWire(conn)
	// The library lifts the deadline in the middle of the handshake.
	overdue := time.AfterFunc(time.Until(deadline), func() { _ = w.Close() })
	defer overdue.Stop()
	defer context.AfterFunc(ctx, func() { _ = w.Close() })()

	properties := amqp.NewConnectionProperties()
	properties.SetClientConnectionName("penstock")
	c := &connection{wire: w, cfg: cfg, channels: make([]shared[*channel], cfg.Channels), gone: make(chan struct{})}
	c.amqp, err = amqp.Open(w, amqp.Config{
		SASL:       []amqp.Authentication{uri.PlainAuth()},
		Vhost:      uri.Vhost,
		FrameSize:  frameSize,
		ChannelMax: channelMax,
		Heartbeat:  cfg.Heartbeat,
		Properties: properties,
		Locale:     "en_US",
	})
	if err == nil {
		// The library numbers its channels from 1 up.
		c.frame, c.lowest = c.amqp.Config.FrameSize, c.amqp.Config.ChannelMax+1
		if heartbeat := c.amqp.Config.Heartbeat; heartbeat > 0 {
			// The library sets a deadline with the next frame that it sees. On a connection that dies now
			// there will be no such frame.
			_ = w.SetReadDeadline(time.Now().Add(heartbeatsMissed * heartbeat))
		}
		go c.watch(c.amqp.NotifyBlocked(make(chan amqp.Blocking, 1)), c.amqp.NotifyClose(make(chan *amqp.Error, 1)), log)
		err = c.declare(cfg.DeclareQueue)
	}
	if err != nil {
		_ = w.Close()
		if said := new(amqp.Error); !overdue.Stop() && !(errors.As(err, &said) && said.Server) {
			err = fmt.Errorf("no answer within connect_timeout (%v)", cfg.ConnectTimeout)
		}
		return nil, explainLogin(address, uri, err)
	}
	log.Info("connected to RabbitMQ", "address", address, "vhost", uri.Vhost)
	return c, nil
}

// declare creates the queue unless there is one of that name, of whatever type.
func (c *connection) declare(queue string) error {
	if queue == "" {
		return nil
	}
	look, err := c.amqp.Channel()
	if err != nil {
		return err
	}
	if _, err = look.QueueDeclarePassive(queue, true, false, false, false, nil); err == nil {
		return look.Close()
	}
	create, err := c.amqp.Channel() // a failed check costs its channel
	if err != nil {
		return err
	}
	if _, err = create.QueueDeclare(queue, true, false, false, false, nil); err != nil {
		return explainDeclare(queue, err)
	}
	return create.Close()
}

// watch tracks the state of the connection until it ends.
func (c *connection) watch(blocking <-chan amqp.Blocking, closed <-chan *amqp.Error, log *slog.Logger) {
	for b := range blocking { // ends with the connection
		c.mu.Lock()
		switch {
		case b.Active && c.blocked == nil:
			c.blocked = &blocked{reason: b.Reason, over: make(chan struct{})}
			log.Warn("RabbitMQ has blocked publishers", "reason", b.Reason)
		case !b.Active && c.blocked != nil:
			close(c.blocked.over)
			c.blocked = nil
			log.Info("RabbitMQ takes messages again")
		}
		c.mu.Unlock()
	}
	if err := <-closed; err != nil && !c.leaving.Load() {
		log.Warn("the connection to RabbitMQ was lost", "reason", said(err))
		c.lost = err
	}
	close(c.gone)
	for _, r := range c.wire.tap.receivers() {
		r.end(c.lost, false)
	}
}

// writable waits until the broker reads messages again.
func (c *connection) writable(ctx context.Context) error {
	for {
		c.mu.Lock()
		b := c.blocked
		c.mu.Unlock()
		if b == nil {
			return c.wire.await(ctx)
		}
		select {
		case <-b.over:
		case <-c.gone:
			return nil // publishing will report it
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// blockedReason is why the broker reads nothing, or "" if it does.
func (c *connection) blockedReason() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.blocked == nil {
		return ""
	}
	return c.blocked.reason
}

// channel returns the channels in turn, opening them as needed.
func (c *connection) channel(ctx context.Context) (*channel, error) {
	slot := &c.channels[int(c.next.Add(1))%len(c.channels)]
	return slot.get(ctx, c.open)
}

// open opens a channel. It waits for the broker without a time limit: a connection that breaks ends
// the wait.
func (c *connection) open() (*channel, error) {
	id, err := c.takeNumber()
	if err != nil {
		return nil, err
	}
	ch := newChannel(c, id)
	select {
	case <-ch.ready:
		return ch, nil
	case <-c.gone:
		ch.end(c.lost, false)
	case <-ch.gone:
	}
	return nil, closedBecause(ch.err, false)
}

// explainOpen is the error of messages for which there was no channel.
func (c *connection) explainOpen(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return gaveUp(context.Cause(ctx), c.blockedReason())
	}
	return penstock.Unavailable(fmt.Errorf("open a channel on RabbitMQ: %w", err))
}

// takeNumber returns a channel number that is not in use; they are given out
// from the top.
func (c *connection) takeNumber() (uint16, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := len(c.free); n > 0 {
		id := c.free[n-1]
		c.free = c.free[:n-1]
		return id, nil
	}
	if c.lowest <= 1 {
		return 0, penstock.WithHint(fmt.Errorf("RabbitMQ allows %d channels on a connection", c.amqp.Config.ChannelMax), "lower channels, or raise channel_max on the broker")
	}
	c.lowest--
	return c.lowest, nil
}

func (c *connection) giveBack(id uint16) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.free = append(c.free, id)
}

func (c *connection) broken() bool { return c.amqp.IsClosed() }

// close says goodbye to the broker, but not for long.
func (c *connection) close(patience time.Duration) {
	c.leaving.Store(true)
	_ = c.amqp.CloseDeadline(time.Now().Add(patience))
	c.abort()
}

// abort breaks the connection and so ends every Send that waits for it.
func (c *connection) abort() {
	c.leaving.Store(true)
	_ = c.wire.Close()
}
