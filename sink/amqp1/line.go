package amqp1

import (
	"context"
	"crypto/tls"
	"net"
	"time"

	"github.com/Azure/go-amqp"

	"github.com/penstock/penstock/internal/lines"
)

// maxLinks is how many addresses a connection has links to. RabbitMQ allows 64 sessions by default.
const maxLinks = 32

// line is a connection, which one Send has at a time.
type line struct {
	lines.Wire
	cfg   *Config
	conn  *amqp.Conn
	links map[string]*link
}

// link sends to one address. It has a session for itself, because RabbitMQ 4.0 ends the whole session if
// there is no such address. Newer releases refuse the link alone.
type link struct {
	session *amqp.Session
	sender  *amqp.Sender
}

// connect does nothing if the line has a connection.
func (l *line) connect(ctx context.Context) error {
	if l.conn != nil {
		return nil
	}
	s, err := l.cfg.server()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, l.cfg.ConnectTimeout)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", s.address)
	if err != nil {
		return err
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // after a cut the system does not send the rest, which would arrive behind newer messages
	}
	if err := l.Keep(conn); err != nil {
		return err
	}
	if s.tls {
		config, err := l.cfg.TLS.Load()
		if err != nil {
			return err
		}
		if config.ServerName == "" {
			config.ServerName = s.host
		}
		secure := tls.Client(conn, config)
		if err := secure.HandshakeContext(ctx); err != nil {
			return err
		}
		conn = secure
	}
	o := &amqp.ConnOptions{HostName: s.host, SASLType: amqp.SASLTypeAnonymous(), WriteTimeout: l.cfg.Timeout}
	if s.user != "" {
		o.SASLType = amqp.SASLTypePlain(s.user, s.password)
	}
	l.conn, err = amqp.NewConn(ctx, conn, o)
	return err
}

// to returns the sender to an address.
func (l *line) to(ctx context.Context, address string) (*amqp.Sender, error) {
	if k := l.links[address]; k != nil {
		return k.sender, nil
	}
	for other := range l.links {
		if len(l.links) < maxLinks {
			break
		}
		l.drop(ctx, other)
	}
	session, err := l.conn.NewSession(ctx, nil)
	if err != nil {
		return nil, err
	}
	o := &amqp.SenderOptions{SettlementMode: amqp.SenderSettleModeUnsettled.Ptr(), TargetDurability: amqp.DurabilityUnsettledState}
	if l.cfg.Capability != "none" {
		o.TargetCapabilities = []string{l.cfg.Capability}
	}
	sender, err := session.NewSender(ctx, address, o)
	if err != nil {
		_ = session.Close(ctx) // the peer may have ended it
		return nil, err
	}
	l.links[address] = &link{session, sender}
	return sender, nil
}

// drop ends the link to an address.
func (l *line) drop(ctx context.Context, address string) {
	if k := l.links[address]; k != nil {
		_ = k.session.Close(ctx)
		delete(l.links, address)
	}
}

// Close ends the connection, and says so to the broker if it is not broken.
func (l *line) Close() {
	if l.conn == nil {
		l.Cut()
		return
	}
	defer time.AfterFunc(time.Second, l.Cut).Stop() // for its goodbye
	_ = l.conn.Close()                              // waits for its goroutines
}
