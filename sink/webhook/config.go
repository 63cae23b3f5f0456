package webhook

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/penstock/penstock/internal/publicaddr"
	"github.com/penstock/penstock/internal/settings"
	"github.com/penstock/penstock/internal/tlsconfig"
)

// Config sets where the messages go and how. The zero value of a field means
// its default; see SetDefaults.
type Config struct {
	// URL of the endpoint. Its path and query are templates: {topic}, {key},
	// {header.NAME}; values are escaped. Host and port are fixed, so that a message
	// cannot choose the server. user:password@ becomes basic authorization.
	URL string `yaml:"url" url:"-"`
	// Method is POST or PUT.
	Method string `yaml:"method" default:"POST" oneof:"POST PUT"`
	// Headers of every request, such as Authorization: Bearer …. They replace headers
	// of the message. Their values are never shown.
	Headers map[string]Secret `yaml:"headers" url:"-"`
	// ContentType is used for messages without a content-type header. If it is empty, a
	// payload that is a JSON object or array is application/json, and any other
	// application/octet-stream.
	ContentType string `yaml:"content_type"`
	// Secrets sign every message after the Standard Webhooks conventions: base64
	// of 24 to 64 bytes, with or without the prefix whsec_. Each secret adds a
	// signature, so that receivers can change from one to the next.
	Secrets []Secret `yaml:"secrets" url:"-"`
	// RetryStatuses are further statuses of 400 to 499 after which a message is tried
	// again. 408, 425 and 429 always are among them.
	RetryStatuses []int `yaml:"retry_statuses"`

	// Concurrency is how many requests may be under way in all Sends together.
	Concurrency int `yaml:"concurrency" default:"256" min:"1" max:"4096"`
	// HTTP is auto, 1.1 or 2. Auto uses HTTP/2 if the endpoint offers it over TLS.
	// 2 with an http:// URL uses HTTP/2 without TLS.
	HTTP string `yaml:"http" default:"auto" oneof:"auto 1.1 2"`
	// ConnectTimeout limits the time to look up the host and connect to it, and then
	// the time of the TLS handshake.
	ConnectTimeout time.Duration `yaml:"connect_timeout" default:"5s"`
	// ResponseTimeout limits the wait for the answer's headers after the request was
	// written.
	ResponseTimeout time.Duration `yaml:"response_timeout" default:"10s"`
	// Timeout limits a whole request, with connecting and the answer's body.
	Timeout time.Duration `yaml:"timeout" default:"15s"`
	// MaxRetryAfter limits the pause that an endpoint can ask for.
	MaxRetryAfter time.Duration `yaml:"max_retry_after" default:"1h"`

	// AllowPrivate permits every address. Without it, an address that is not public is
	// refused, also if a host name leads to it.
	AllowPrivate bool `yaml:"allow_private"`
	// AllowAddresses permits addresses that would be refused, or ranges such as
	// 10.1.0.0/16.
	AllowAddresses []string `yaml:"allow_addresses"`
	// Proxy to send through, http:// or https://. Proxies of the environment are not
	// used. With a proxy, the proxy decides which addresses can be reached.
	Proxy string `yaml:"proxy"`

	TLS TLSConfig `yaml:"tls"`
}

// TLSConfig is used with https:// URLs. Versions before TLS 1.2 are refused.
type TLSConfig = tlsconfig.Client

// cloudEventsPrefix begins the headers of CloudEvents in binary mode, which a
// static header would overwrite in every message: one id for all of them.
const cloudEventsPrefix = "Ce-"

// SetDefaults sets the fields that are zero.
func (c *Config) SetDefaults() { settings.Defaults(c) }

// Validate returns a *penstock.FieldError for the first field that cannot be used.
// Call SetDefaults before. It opens no file. Its errors do not quote the URL, which
// often holds a token.
func (c *Config) Validate() error {
	e, err := parseEndpoint(c.URL)
	if err != nil {
		return err
	}
	if err := cmp.Or(c.validAddresses(e.base.Hostname()), c.validHeaders(e), settings.Check(c)); err != nil {
		return err
	}
	for i, secret := range c.Secrets {
		if _, err := signingKey(secret); err != nil {
			return field(fmt.Sprintf("secrets[%d]", i), err.Error(), "make one with: echo whsec_$(openssl rand -base64 24)")
		}
	}
	for i, status := range c.RetryStatuses {
		if status < 400 || status > 499 {
			return field(fmt.Sprintf("retry_statuses[%d]", i), fmt.Sprintf("is %d", status), "list statuses of 400 to 499; others need no listing")
		}
	}
	return c.TLS.Validate("https://", e.base.Scheme == "https")
}

func (c *Config) validAddresses(host string) error {
	if c.Proxy != "" {
		u, err := url.Parse(c.Proxy)
		if err != nil || u.Hostname() == "" || u.Scheme != "http" && u.Scheme != "https" {
			return field("proxy", "is not a proxy's URL", "write http://user:password@host:3128")
		}
		if c.AllowPrivate || len(c.AllowAddresses) > 0 {
			return field("proxy", "is set together with allow_private or allow_addresses", "remove those: with a proxy, the proxy decides which addresses are reached")
		}
		return nil
	}
	allowed, err := c.permitted()
	if err != nil {
		return err
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		if err := allowed.Check(ip); err != nil {
			return field("url", fmt.Sprintf("has a host that is refused (%v)", err), "%s", allowHint)
		}
	}
	return nil
}

// AddressError: the endpoint's host has an address that is not public.
type AddressError = publicaddr.Error

const allowHint = "if the endpoint is meant to be there, set allow_private: true, or list its range in allow_addresses; of a sink given as a URL, append #allow_private=true"

func (c *Config) permitted() (*publicaddr.Permitted, error) {
	p := &publicaddr.Permitted{All: c.AllowPrivate}
	for i, s := range c.AllowAddresses {
		if !p.Add(s) {
			return nil, field(fmt.Sprintf("allow_addresses[%d]", i), fmt.Sprintf("is %q", strings.TrimSpace(s)), "write an address or a range such as 10.1.0.0/16 or fd00::/8")
		}
	}
	return p, nil
}

func (c *Config) validHeaders(e *endpoint) error {
	if err := checkValue("content_type", c.ContentType); err != nil {
		return field("content_type", "is not one line of text", "write a media type such as application/json")
	}
	seen := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(c.Headers)) {
		at, canonical := "headers."+name, http.CanonicalHeaderKey(name)
		switch {
		case checkName(name) != nil:
			return field("headers", fmt.Sprintf("has a header with the name %q", name), "name headers with letters, digits and dashes")
		case checkValue(name, string(c.Headers[name])) != nil:
			return field(at, "is not one line of text without spaces around it", "write one line")
		case canonical == "Authorization" && e.basic != "":
			return field(at, "is set together with a user in the URL", "remove one of them")
		case canonical == "Content-Type":
			return field(at, "is set", "set content_type instead")
		case canonical != "Authorization" && canonical != "Cookie" && reserved[canonical]:
			return field(at, "is not a header to configure", "remove it: it belongs to the connection or to Penstock")
		case strings.HasPrefix(canonical, cloudEventsPrefix):
			return field(at, "is an attribute of CloudEvents", "remove it, and let the subscription's format set such headers: each message has its own")
		case seen[canonical]:
			return field(at, "is given twice", "keep one; HTTP does not distinguish upper and lower case in names")
		}
		seen[canonical] = true
	}
	return nil
}

var field = settings.Field

// RelayLimits returns the relay's max_batch and senders for a webhook: one message per
// Send, and as many Sends as requests may be under way. So no key waits for the answer
// to another key's request.
func (c *Config) RelayLimits() (maxBatch, senders int) { return 1, c.Concurrency }
