package rabbitmq

import (
	"context"
	"crypto/tls"
	"net"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// dial makes a TCP or, with a tls.Config, a TLS connection.
func dial(ctx context.Context, address string, deadline time.Time, config *tls.Config) (net.Conn, error) {
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	if config == nil {
		return new(net.Dialer).DialContext(ctx, "tcp", address)
	}
	return (&tls.Dialer{Config: config}).DialContext(ctx, "tcp", address)
}

// tlsConfig reads the files on each call, so a renewed certificate is used from the next
// connection on. It returns nil without TLS.
func (c *Config) tlsConfig(uri amqp.URI) (*tls.Config, error) {
	if uri.Scheme != "amqps" {
		return nil, nil
	}
	config, err := c.TLS.Load()
	if err != nil {
		return nil, err
	}
	if config.ServerName == "" {
		config.ServerName = uri.Host
	}
	return config, nil
}
