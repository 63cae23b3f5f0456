package measure

import (
	"fmt"
	"net"
	"net/url"
	"strings"

	"github.com/penstock/penstock/internal/test/tcpproxy"
)

// link is the way to a broker that can be cut: a TCP proxy on a local port.
type link struct{ *tcpproxy.Proxy }

// newLink leads to the server of a sink URL. It returns nil where the sink does
// not use TCP.
func newLink(sinkURL string) (*link, error) {
	scheme, _, _ := strings.Cut(sinkURL, "://")
	port := map[string]string{"amqp": "5672", "nats": "4222"}[scheme]
	if port == "" {
		if strings.Contains(sinkURL, "://") {
			return nil, fmt.Errorf("the connection of a %s sink cannot be cut: use amqp://… or nats://…", scheme)
		}
		return nil, nil
	}
	u, err := url.Parse(sinkURL)
	if err != nil || strings.Contains(u.Host, ",") {
		return nil, fmt.Errorf("the outage needs a sink URL with one host")
	}
	server := u.Host
	if u.Port() == "" {
		server = net.JoinHostPort(u.Hostname(), port)
	}
	proxy, err := tcpproxy.Start(server)
	if err != nil {
		return nil, err
	}
	return &link{proxy}, nil
}

// reach changes a sink URL so that it leads through the link.
func (l *link) reach(sinkURL string) (string, error) {
	u, err := url.Parse(sinkURL)
	if err != nil {
		return "", err
	}
	u.Host = l.Addr()
	return u.String(), nil
}
