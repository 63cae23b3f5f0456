// Package amazon has the shared part of the sinks for Amazon SQS and SNS. These are the form of a
// message, batches of ten with a verdict for each entry, and the meaning of errors. Claim checks in S3 use its
// credentials and connections.
package amazon

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"

	"github.com/penstock/penstock/internal/publicaddr"
	"github.com/penstock/penstock/internal/settings"
)

// Settings of both sinks, a part of their configurations.
type Settings struct {
	// Region of the service. Default: that of the destination, else of the environment and the shared files.
	Region string `yaml:"region"`
	// Profile of the shared files of AWS (~/.aws).
	Profile string `yaml:"profile"`
	// Endpoint replaces the address of the service, for an emulator: http://host:port.
	Endpoint string `yaml:"endpoint"`
	// AllowPrivate permits an Endpoint whose address is not public.
	AllowPrivate bool `yaml:"allow_private" needs:"endpoint"`

	// Envelope puts every message into an envelope of JSON. Without it, only those that
	// do not fit into text and ten attributes are in one.
	Envelope bool `yaml:"envelope"`
	// MaxMessageBytes is the largest message with its attributes that the queue or topic takes.
	MaxMessageBytes int `yaml:"max_message_bytes" min:"1024" max:"1048576"`
	// Concurrency is how many requests may be under way in all Sends together.
	Concurrency int `yaml:"concurrency" default:"32" min:"1" max:"1024"`
	// ConnectTimeout limits one attempt to connect, and then the TLS handshake.
	ConnectTimeout time.Duration `yaml:"connect_timeout" default:"5s"`
	// Timeout limits a request.
	Timeout time.Duration `yaml:"timeout" default:"10s"`
}

// Limits of the services: https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/quotas-messages.html
// and https://docs.aws.amazon.com/sns/latest/api/API_PublishBatch.html. A queue or topic may have a lower one.
const (
	MaxBytes      = 1 << 20
	batchEntries  = 10
	maxAttributes = 10
)

// Check returns a *penstock.FieldError for the first field of a configuration with these settings that cannot be used.
func Check(c any, s *Settings) error {
	err := settings.Check(c)
	if err == nil && s.Endpoint != "" {
		_, err = (&publicaddr.Permitted{All: s.AllowPrivate}).Endpoint(s.Endpoint)
	}
	return err
}

// Load makes the configuration of a client. Credentials come from the SDK's default chain: the environment,
// the shared files, web identity, the container's or the instance's role. It asks for none yet. over makes the
// requests to the service, and not those for credentials, which go to addresses that are not public.
func Load(o *Settings) (c aws.Config, over *http.Client, err error) {
	with := []func(*config.LoadOptions) error{config.WithRetryer(func() aws.Retryer { return aws.NopRetryer{} })} // the relay tries again
	if o.Region != "" {
		with = append(with, config.WithRegion(o.Region))
	}
	if o.Profile != "" {
		with = append(with, config.WithSharedConfigProfile(o.Profile))
	}
	load := func(ctx context.Context) (aws.Config, error) { return config.LoadDefaultConfig(ctx, with...) }
	if c, err = load(context.Background()); err != nil {
		return c, nil, settings.Field("profile", fmt.Sprintf("or the environment cannot be used (%v)", err), "see the AWS_… variables and the files in ~/.aws")
	}
	if c.Region == "" {
		return c, nil, settings.Field("region", "is not set", "write it, for example eu-west-1, or set AWS_REGION")
	}
	renewable(&c, load)
	dialer := &net.Dialer{Timeout: o.ConnectTimeout}
	transport := &http.Transport{
		Proxy: http.ProxyFromEnvironment, DialContext: dialer.DialContext, TLSHandshakeTimeout: o.ConnectTimeout,
		MaxIdleConns: o.Concurrency, MaxIdleConnsPerHost: o.Concurrency, IdleConnTimeout: 50 * time.Second, ForceAttemptHTTP2: true,
	}
	if o.Endpoint != "" {
		transport.Proxy = nil
		dialer.Control = (&publicaddr.Permitted{All: o.AllowPrivate}).Control
	}
	return c, &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}, nil
}
