package kafka

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"time"
)

// dialer makes TCP or, with a tls.Config, TLS connections.
//
// What a closed connection has not got rid of is thrown away: the system would
// go on sending it, and once a broken network heals, records that were given up
// would arrive behind newer ones.
func dialer(timeout time.Duration, config *tls.Config) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		conn, err := new(net.Dialer).DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		if tcp, ok := conn.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0) // refused only by a connection that is gone
		}
		if config == nil {
			return conn, nil
		}
		own := config.Clone()
		if own.ServerName == "" {
			own.ServerName, _, _ = net.SplitHostPort(address) // was dialed
		}
		secure := tls.Client(conn, own)
		if err := secure.HandshakeContext(ctx); err != nil {
			conn.Close()
			return nil, err
		}
		return secure, nil
	}
}

// config reads the files each time it is called, so that a certificate that was
// renewed is used by the next producer.
func (c *TLSConfig) config() (*tls.Config, error) {
	config := &tls.Config{
		MinVersion:         tls.VersionTLS12,
		ServerName:         c.ServerName, // empty: the broker's host
		InsecureSkipVerify: c.DangerouslySkipCertificateCheck,
	}
	if c.CAFile != "" {
		pem, err := os.ReadFile(c.CAFile)
		if err != nil {
			return nil, field("tls.ca_file", fmt.Sprintf("cannot be read (%v)", err), "name a file with the authority's certificates in PEM form")
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, field("tls.ca_file", fmt.Sprintf("%s holds no certificate", c.CAFile), "name a file with the authority's certificates in PEM form")
		}
	}
	if c.CertFile != "" {
		pair, err := tls.LoadX509KeyPair(c.CertFile, c.KeyFile)
		if err != nil {
			return nil, field("tls.cert_file", fmt.Sprintf("and tls.key_file cannot be used (%v)", err), "name a certificate and its unencrypted key in PEM form")
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}
