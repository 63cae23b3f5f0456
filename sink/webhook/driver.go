package webhook

import (
	"cmp"
	"context"
	"crypto/tls"
	"net"

	"github.com/penstock/penstock/internal/descriptor"
)

// Driver describes this sink for the list in internal/drivers.
var Driver = descriptor.Sink[Config]{
	Name: "webhook", Usage: "https://HOST/PATH", Schemes: []string{"https", "http"},
	Parse: ParseURL, Open: descriptor.Opens(Open),
	Binding: descriptor.Binding{Name: "webhook", Prefixes: []string{"ce-"}, DataContentType: descriptor.ContentType, Structured: descriptor.ContentType, Percent: true},
	Reach:   descriptor.Reaches(Open, (*Sink).reach),
}

// reach connects to the endpoint, or to the proxy, and sends no request.
func (s *Sink) reach(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.ConnectTimeout)
	defer cancel()
	to := &s.endpoint.base
	if s.transport.Proxy != nil {
		if to, err = s.transport.Proxy(s.request); err != nil {
			return err
		}
	}
	host, port := to.Hostname(), cmp.Or(to.Port(), map[string]string{"https": "443"}[to.Scheme], "80")
	conn, err := s.transport.DialContext(ctx, "tcp", net.JoinHostPort(host, port))
	if err != nil {
		return err
	}
	defer conn.Close()
	if to.Scheme != "https" {
		return nil
	}
	own := s.transport.TLSClientConfig.Clone()
	own.ServerName = cmp.Or(own.ServerName, host)
	return tls.Client(conn, own).HandshakeContext(ctx)
}
