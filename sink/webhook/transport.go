package webhook

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"time"
)

const (
	// maxAnswerHeader bounds the header of an answer, maxAnswerBody what is read of
	// its body.
	maxAnswerHeader = 64 << 10
	maxAnswerBody   = 64 << 10

	idleTimeout = 90 * time.Second
	// pingAfter is how long an HTTP/2 connection may be silent before it is asked
	// whether it is alive. All requests to an endpoint share one, so a dead one
	// must not be found out only by TCP.
	pingAfter = 5 * time.Second
)

// newTransport is the HTTP client without its conveniences: nothing is
// redirected, decompressed, remembered in cookies or taken from the environment.
func newTransport(c *Config) (*http.Transport, error) {
	tlsConfig, err := c.TLS.load()
	if err != nil {
		return nil, err
	}
	dialer, err := newDialer(c)
	if err != nil {
		return nil, err
	}
	t := &http.Transport{
		DialContext:            dialer.DialContext,
		TLSClientConfig:        tlsConfig,
		TLSHandshakeTimeout:    c.ConnectTimeout,
		ResponseHeaderTimeout:  c.ResponseTimeout,
		MaxResponseHeaderBytes: maxAnswerHeader,
		MaxIdleConnsPerHost:    c.Concurrency,
		IdleConnTimeout:        idleTimeout,
		DisableCompression:     true,
		Protocols:              c.protocols(),
		HTTP2:                  &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: c.ConnectTimeout, WriteByteTimeout: c.Timeout},
	}
	if c.Proxy != "" {
		proxy, err := url.Parse(c.Proxy)
		if err != nil {
			return nil, field("proxy", "is not a proxy's URL", "write http://user:password@host:3128")
		}
		t.Proxy = http.ProxyURL(proxy)
	}
	return t, nil
}

// newDialer checks every address that it connects to, except a proxy's: that is
// all there is to connect to then, and it is configured.
func newDialer(c *Config) (*net.Dialer, error) {
	d := &net.Dialer{Timeout: c.ConnectTimeout, KeepAlive: 15 * time.Second}
	if c.Proxy != "" {
		return d, nil
	}
	allowed, err := c.permitted()
	if err != nil {
		return nil, err
	}
	d.Control = allowed.control
	return d, nil
}

func (c *Config) protocols() *http.Protocols {
	p := new(http.Protocols)
	p.SetHTTP1(c.HTTP != "2")
	p.SetHTTP2(c.HTTP != "1.1")
	p.SetUnencryptedHTTP2(c.HTTP == "2")
	return p
}

func (t *TLSConfig) load() (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.ServerName, ClientSessionCache: tls.NewLRUClientSessionCache(0)}
	if t.CAFile != "" {
		pem, err := os.ReadFile(t.CAFile)
		if err != nil {
			return nil, field("tls.ca_file", fmt.Sprintf("cannot be read (%v)", err), "name a file that this user may read")
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, field("tls.ca_file", "holds no certificate", "name a PEM file")
		}
	}
	if t.CertFile != "" {
		pair, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
		if err != nil {
			return nil, field("tls.cert_file", fmt.Sprintf("cannot be used with key_file (%v)", err), "name the PEM files of one certificate and its key")
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}
