package sqs

import (
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/penstock/penstock/internal/amazon"
	"github.com/penstock/penstock/internal/sinkurl"
)

// Config sets where the messages go and how. The zero value of a field means
// its default; see SetDefaults. Credentials are not in it: they come from the
// default chain of the SDK.
type Config struct {
	// QueueURL is the URL of the queue. Its path is a template: {topic}, {key}, {header.NAME}.
	// In values, characters that names of queues cannot have become hyphens. A name that
	// ends in .fifo is a FIFO queue.
	QueueURL string `yaml:"queue_url" url:"-"`
	// Region of the service. Default: that of queue_url, else of the environment and the shared files.
	Region string `yaml:"region"`
	// Profile of the shared files of AWS (~/.aws).
	Profile string `yaml:"profile"`
	// Endpoint replaces the address of the service, for an emulator: http://host:port.
	Endpoint string `yaml:"endpoint"`
	// AllowPrivate permits an Endpoint whose address is not public.
	AllowPrivate bool `yaml:"allow_private"`

	// Envelope puts every message into an envelope of JSON. Without it, only those that
	// do not fit into text and ten attributes are in one.
	Envelope bool `yaml:"envelope"`
	// MaxMessageBytes is the largest message with its attributes that the queue takes.
	MaxMessageBytes int `yaml:"max_message_bytes"`
	// Concurrency is how many requests may be under way in all Sends together.
	Concurrency int `yaml:"concurrency"`
	// ConnectTimeout limits one attempt to connect, and then the TLS handshake.
	ConnectTimeout time.Duration `yaml:"connect_timeout"`
	// Timeout limits a request.
	Timeout time.Duration `yaml:"timeout"`
}

// DefaultMaxMessageBytes is the limit of queues that are not configured otherwise.
const DefaultMaxMessageBytes = 1 << 20

// SetDefaults sets the fields that are zero.
func (c *Config) SetDefaults() {
	o := c.options()
	o.Defaults(DefaultMaxMessageBytes)
	c.MaxMessageBytes, c.Concurrency, c.ConnectTimeout, c.Timeout = o.MaxMessageBytes, o.Concurrency, o.ConnectTimeout, o.Timeout
	if c.Region == "" {
		c.Region = regionOf(c.QueueURL)
	}
}

func (c *Config) options() *amazon.Options {
	return &amazon.Options{
		Service: "SQS", Field: "queue_url", Destination: c.QueueURL, Region: c.Region, Profile: c.Profile, Endpoint: c.Endpoint,
		AllowPrivate: c.AllowPrivate, Envelope: c.Envelope, MaxMessageBytes: c.MaxMessageBytes, Concurrency: c.Concurrency,
		ConnectTimeout: c.ConnectTimeout, Timeout: c.Timeout,
	}
}

// Validate returns a *penstock.FieldError for the first field that cannot be used.
// Call SetDefaults before. It opens no file.
func (c *Config) Validate() error {
	u, err := url.Parse(c.QueueURL)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Hostname() == "" || strings.ContainsAny(u.Host, "{}") || strings.Count(u.Path, "/") < 2 {
		return sinkurl.Field("queue_url", "is not a queue's URL", "write https://sqs.REGION.amazonaws.com/ACCOUNT/QUEUE, or sqs:// and the same")
	}
	return c.options().Validate()
}

// regionOf is the region in the host name of a queue's URL, or empty.
func regionOf(queue string) string {
	u, err := url.Parse(queue)
	if err != nil {
		return ""
	}
	labels := strings.Split(u.Hostname(), ".")
	if i := slices.Index(labels, "sqs"); i >= 0 && len(labels) > i+2 && labels[i+2] == "amazonaws" {
		return labels[i+1]
	}
	return ""
}
