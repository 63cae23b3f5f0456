package measure

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgtype"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/penstock/penstock/internal/sinkurl"
)

// publishing is how a worker of the ladder publishes a batch; confirms are on.
type publishing int

const (
	eachAwaited  publishing = iota // the next message when the last is confirmed
	allAwaited                     // all messages, then all confirms
	batchWritten                   // the same, many messages in one write to the socket
)

// publisher is the broker's own client as one uses it by hand: a connection and a
// channel of a worker's own, persistent messages, publisher confirms.
type publisher struct {
	how      publishing
	conn     *amqp.Connection
	ch       *amqp.Channel
	written  *gatheringConn // of batchWritten
	exchange string
	confirms []*amqp.DeferredConfirmation
}

// dialPublisher publishes to the exchange that the URL of a sink names.
func dialPublisher(sinkURL string, how publishing) (p *publisher, err error) {
	server, raw, _ := strings.Cut(sinkURL, "?")
	query, err := url.ParseQuery(raw)
	if err != nil {
		return nil, err
	}
	p = &publisher{how: how, exchange: query.Get("exchange")}
	dial := amqp.DefaultDial(5 * time.Second)
	config := amqp.Config{Heartbeat: 10 * time.Second, Dial: func(network, address string) (net.Conn, error) {
		conn, err := dial(network, address)
		if err != nil || how != batchWritten {
			return conn, err
		}
		p.written = newGatheringConn(conn)
		return p.written, nil
	}}
	for _, host := range sinkurl.PerHost(server) {
		if p.conn, err = amqp.DialConfig(host, config); err == nil {
			break
		}
	}
	if err != nil {
		return nil, err
	}
	if p.ch, err = p.conn.Channel(); err != nil {
		return nil, errors.Join(err, p.close())
	}
	if err = p.ch.Confirm(false); err != nil {
		return nil, errors.Join(err, p.close())
	}
	return p, nil
}

func (p *publisher) close() error {
	if p == nil || p.conn == nil {
		return nil
	}
	return p.conn.Close()
}

// publish returns when every row is confirmed.
func (p *publisher) publish(ctx context.Context, rows [][][]byte) error {
	p.confirms = p.confirms[:0]
	for _, row := range rows {
		confirm, err := p.ch.PublishWithDeferredConfirm(p.exchange, string(row[1]), false, false, amqp.Publishing{
			MessageId: pgtype.UUID{Bytes: [16]byte(row[0]), Valid: true}.String(), Type: string(row[1]),
			ContentType: "application/json", DeliveryMode: amqp.Persistent,
			Body: row[2][1:], // jsonb in binary begins with its version
		})
		if err != nil {
			return err
		}
		if p.how == eachAwaited {
			if err := confirmed(ctx, confirm); err != nil {
				return err
			}
			continue
		}
		p.confirms = append(p.confirms, confirm)
	}
	if p.written != nil {
		if err := p.written.Flush(); err != nil {
			return err
		}
	}
	for _, confirm := range p.confirms {
		if err := confirmed(ctx, confirm); err != nil {
			return err
		}
	}
	return nil
}

func confirmed(ctx context.Context, c *amqp.DeferredConfirmation) error {
	switch acked, err := c.WaitContext(ctx); {
	case err != nil:
		return err
	case !acked:
		return fmt.Errorf("the broker refused message %d of the channel", c.DeliveryTag)
	}
	return nil
}

// gatheringConn writes to the socket when 64 KiB have come together, at Flush,
// or a millisecond after the first write: as a client does that batches its
// publishes. This one writes every message to the socket alone.
type gatheringConn struct {
	net.Conn
	mu    sync.Mutex
	w     *bufio.Writer
	timer *time.Timer
	err   error // of a write that the timer made
}

const (
	gatherBytes = 64 << 10
	gatherFor   = time.Millisecond
)

func newGatheringConn(conn net.Conn) *gatheringConn {
	g := &gatheringConn{Conn: conn, w: bufio.NewWriterSize(conn, gatherBytes)}
	g.timer = time.AfterFunc(time.Hour, func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.err = errors.Join(g.err, g.w.Flush())
	})
	return g
}

func (g *gatheringConn) Write(b []byte) (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.err != nil {
		return 0, g.err
	}
	if g.w.Buffered() == 0 {
		g.timer.Reset(gatherFor)
	}
	return g.w.Write(b)
}

// Flush writes the gathered rows.
func (g *gatheringConn) Flush() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.timer.Stop()
	return errors.Join(g.err, g.w.Flush())
}

// Close gives the remaining messages a second: a Write may hang meanwhile.
func (g *gatheringConn) Close() error {
	_ = g.Conn.SetWriteDeadline(time.Now().Add(time.Second))
	_ = g.Flush()
	return g.Conn.Close()
}
