package webhook

import (
	"crypto/tls"
	"net"
	"net/http"
	"net/url"
	"time"
)

const (
	// maxAnswerHeader bounds the header of an answer, maxAnswerBody the part that is read of
	// its body.
	maxAnswerHeader = 64 << 10
	maxAnswerBody   = 64 << 10

	idleTimeout = 90 * time.Second
	// pingAfter is how long an HTTP/2 connection may be silent before a ping checks it. All requests
	// to an endpoint share one, so TCP alone would find a dead one too late.
	pingAfter = 5 * time.Second
)

// newTransport is the HTTP client without its conveniences: no redirects, no decompression, no
// cookies, nothing from the environment.
func newTransport(c *Config) (*http.Transport, error) {
	tlsConfig, err := c.TLS.Load()
	if err != nil {
		return nil, err
	}
	tlsConfig.ClientSessionCache = tls.NewLRUClientSessionCache(0)
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

// newDialer checks every address that it connects to. A configured proxy is not checked: it is
// then the only address to connect to.
func newDialer(c *Config) (*net.Dialer, error) {
	d := &net.Dialer{Timeout: c.ConnectTimeout, KeepAlive: 15 * time.Second}
	if c.Proxy != "" {
		return d, nil
	}
	allowed, err := c.permitted()
	if err != nil {
		return nil, err
	}
	d.Control = allowed.Control
	return d, nil
}

func (c *Config) protocols() *http.Protocols {
	p := new(http.Protocols)
	p.SetHTTP1(c.HTTP != "2")
	p.SetHTTP2(c.HTTP != "1.1")
	p.SetUnencryptedHTTP2(c.HTTP == "2")
	return p
}
