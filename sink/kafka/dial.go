package kafka

import (
	"context"
	"crypto/tls"
	"net"
	"time"
)

// dialer reads the files of tls on each call, so the next producer uses a renewed certificate.
func (c *Config) dialer() (dialFunc, error) {
	a, err := c.address()
	if err != nil {
		return nil, err
	}
	var config *tls.Config
	if a.tls {
		if config, err = c.TLS.Load(); err != nil {
			return nil, err
		}
	}
	return dialer(c.ConnectTimeout, config), nil
}

// dialer makes TCP or, with a tls.Config, TLS connections.
//
// Bytes that a closed connection has not sent are thrown away. Otherwise the system would continue
// to send them. Once a broken network heals, records that were given up would arrive behind newer
// ones.
func dialer(timeout time.Duration, config *tls.Config) dialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		conn, err := new(net.Dialer).DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		if tcp, ok := conn.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0) // only a closed connection refuses it
		}
		if config == nil {
			return conn, nil
		}
		own := config.Clone()
		if own.ServerName == "" {
			own.ServerName, _, _ = net.SplitHostPort(address) // it was dialed
		}
		secure := tls.Client(conn, own)
		if err := secure.HandshakeContext(ctx); err != nil {
			conn.Close()
			return nil, err
		}
		return secure, nil
	}
}
