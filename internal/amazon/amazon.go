// Package amazon has the shared part of the sinks for Amazon SQS and SNS. These are the form of a
// message, batches of ten with a verdict for each entry, and the meaning of errors. Claim checks in S3 use its
// credentials and connections.
package amazon

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"

	"github.com/penstock/penstock/internal/publicaddr"
	"github.com/penstock/penstock/internal/sinkurl"
	"github.com/penstock/penstock/internal/template"
)

// Options are the settings of both sinks.
type Options struct {
	Service     string // for messages: SQS
	Field       string // of Destination, for messages: queue_url
	Destination string // a template
	Region      string
	Profile     string
	Endpoint    string

	AllowPrivate    bool
	Envelope        bool
	MaxMessageBytes int
	Concurrency     int
	ConnectTimeout  time.Duration
	Timeout         time.Duration
}

// Defaults.
const (
	DefaultConcurrency    = 32
	DefaultConnectTimeout = 5 * time.Second
	DefaultTimeout        = 10 * time.Second
)

// Limits of the services: https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/quotas-messages.html
// and https://docs.aws.amazon.com/sns/latest/api/API_PublishBatch.html. A queue or topic may have a lower one.
const (
	MaxBytes       = 1 << 20
	minBytes       = 1 << 10
	batchEntries   = 10
	maxAttributes  = 10
	maxConcurrency = 1024
)

// Defaults returns the options that are zero by default.
func (o *Options) Defaults(maxMessageBytes int) {
	o.MaxMessageBytes = cmp.Or(o.MaxMessageBytes, maxMessageBytes)
	o.Concurrency = cmp.Or(o.Concurrency, DefaultConcurrency)
	o.ConnectTimeout = cmp.Or(o.ConnectTimeout, DefaultConnectTimeout)
	o.Timeout = cmp.Or(o.Timeout, DefaultTimeout)
}

// Validate returns a *penstock.FieldError for the first field that cannot be used.
func (o *Options) Validate() error {
	if _, err := template.Parse(o.Destination); err != nil {
		return field(o.Field, fmt.Sprintf("cannot be used (%v)", err), "placeholders are "+template.Allowed)
	}
	switch {
	case o.MaxMessageBytes < minBytes || o.MaxMessageBytes > MaxBytes:
		return field("max_message_bytes", fmt.Sprintf("is %d", o.MaxMessageBytes), "choose %d to %d, as on the queue or topic", minBytes, MaxBytes)
	case o.Concurrency < 1 || o.Concurrency > maxConcurrency:
		return field("concurrency", fmt.Sprintf("is %d", o.Concurrency), "choose 1 to %d", maxConcurrency)
	case o.ConnectTimeout < 0:
		return field("connect_timeout", "is negative", "write a duration such as 5s")
	case o.Timeout < 0:
		return field("timeout", "is negative", "write a duration such as 10s")
	case o.Endpoint == "" && o.AllowPrivate:
		return field("allow_private", "is set without endpoint", "remove it: the addresses of AWS are always permitted")
	case o.Endpoint == "":
		return nil
	}
	_, err := (&publicaddr.Permitted{All: o.AllowPrivate}).Endpoint(o.Endpoint)
	return err
}

var field = sinkurl.Field

// Load makes the configuration of a client. Credentials come from the SDK's default chain: the environment,
// the shared files, web identity, the container's or the instance's role. It asks for none yet.
func (o *Options) Load() (aws.Config, error) {
	with := []func(*config.LoadOptions) error{config.WithRetryer(func() aws.Retryer { return aws.NopRetryer{} })} // the relay tries again
	if o.Region != "" {
		with = append(with, config.WithRegion(o.Region))
	}
	if o.Profile != "" {
		with = append(with, config.WithSharedConfigProfile(o.Profile))
	}
	load := func(ctx context.Context) (aws.Config, error) { return config.LoadDefaultConfig(ctx, with...) }
	c, err := load(context.Background())
	if err != nil {
		return c, field("profile", fmt.Sprintf("or the environment cannot be used (%v)", err), "see the AWS_… variables and the files in ~/.aws")
	}
	if c.Region == "" {
		return c, field("region", "is not set", "write it, for example eu-west-1, or set AWS_REGION")
	}
	renewable(&c, load)
	return c, nil
}

// Client makes requests to the service, and not those for credentials, which go to addresses that
// are not public.
func (o *Options) Client() *http.Client {
	dialer := &net.Dialer{Timeout: o.ConnectTimeout}
	transport := &http.Transport{
		Proxy: http.ProxyFromEnvironment, DialContext: dialer.DialContext, TLSHandshakeTimeout: o.ConnectTimeout,
		MaxIdleConns: o.Concurrency, MaxIdleConnsPerHost: o.Concurrency, IdleConnTimeout: 50 * time.Second, ForceAttemptHTTP2: true,
	}
	if o.Endpoint != "" {
		transport.Proxy = nil
		dialer.Control = (&publicaddr.Permitted{All: o.AllowPrivate}).Control
	}
	return &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}
