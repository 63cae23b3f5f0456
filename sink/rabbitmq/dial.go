package rabbitmq

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// dial makes a TCP or, with a tls.Config, a TLS connection.
func dial(address string, deadline time.Time, config *tls.Config) (net.Conn, error) {
	ctx, cancel := context.WithDeadline(context.Background(), deadline)
	defer cancel()
	if config == nil {
		return new(net.Dialer).DialContext(ctx, "tcp", address)
	}
	return (&tls.Dialer{Config: config}).DialContext(ctx, "tcp", address)
}

// tlsConfig reads the files each time it is called, so that a certificate that
// was renewed is used from the next connection on. Nil without TLS.
func (c *Config) tlsConfig(uri amqp.URI) (*tls.Config, error) {
	if uri.Scheme != "amqps" {
		return nil, nil
	}
	config := &tls.Config{
		MinVersion:         tls.VersionTLS12,
		ServerName:         uri.Host,
		InsecureSkipVerify: c.TLS.DangerouslySkipCertificateCheck,
	}
	if c.TLS.ServerName != "" {
		config.ServerName = c.TLS.ServerName
	}
	if c.TLS.CAFile != "" {
		pem, err := os.ReadFile(c.TLS.CAFile)
		if err != nil {
			return nil, field("tls.ca_file", fmt.Sprintf("cannot be read (%v)", err), "name a file with the authority's certificates in PEM form")
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, field("tls.ca_file", fmt.Sprintf("%s holds no certificate", c.TLS.CAFile), "name a file with the authority's certificates in PEM form")
		}
	}
	if c.TLS.CertFile != "" {
		pair, err := tls.LoadX509KeyPair(c.TLS.CertFile, c.TLS.KeyFile)
		if err != nil {
			return nil, field("tls.cert_file", fmt.Sprintf("and tls.key_file cannot be used (%v)", err), "name a certificate and its unencrypted key in PEM form")
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}
