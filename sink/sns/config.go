package sns

import (
	"strings"
	"time"

	"github.com/penstock/penstock/internal/amazon"
	"github.com/penstock/penstock/internal/sinkurl"
)

// Config sets where the messages go and how. The zero value of a field means
// its default; see SetDefaults. Credentials are not in it: they come from the
// default chain of the SDK.
type Config struct {
	// TopicARN is the ARN of the topic. Its name is a template: {topic}, {key}, {header.NAME}.
	// In values, characters that names of topics cannot have become hyphens. A name that
	// ends in .fifo is a FIFO topic.
	TopicARN string `yaml:"topic_arn" url:"-"`
	// Region of the service. Default: that of topic_arn, else of the environment and the shared files.
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
	// MaxMessageBytes is the largest message with its attributes that the topic takes.
	MaxMessageBytes int `yaml:"max_message_bytes"`
	// Concurrency is how many requests may be under way in all Sends together.
	Concurrency int `yaml:"concurrency"`
	// ConnectTimeout limits one attempt to connect, and then the TLS handshake.
	ConnectTimeout time.Duration `yaml:"connect_timeout"`
	// Timeout limits a request.
	Timeout time.Duration `yaml:"timeout"`
}

// DefaultMaxMessageBytes is the limit of topics that are not configured otherwise.
const DefaultMaxMessageBytes = 256 << 10

// SetDefaults sets the fields that are zero.
func (c *Config) SetDefaults() {
	o := c.options()
	o.Defaults(DefaultMaxMessageBytes)
	c.MaxMessageBytes, c.Concurrency, c.ConnectTimeout, c.Timeout = o.MaxMessageBytes, o.Concurrency, o.ConnectTimeout, o.Timeout
	if c.Region == "" {
		c.Region = regionOf(c.TopicARN)
	}
}

func (c *Config) options() *amazon.Options {
	return &amazon.Options{
		Service: "SNS", Field: "topic_arn", Destination: c.TopicARN, Region: c.Region, Profile: c.Profile, Endpoint: c.Endpoint,
		AllowPrivate: c.AllowPrivate, Envelope: c.Envelope, MaxMessageBytes: c.MaxMessageBytes, Concurrency: c.Concurrency,
		ConnectTimeout: c.ConnectTimeout, Timeout: c.Timeout,
	}
}

// Validate returns a *penstock.FieldError for the first field that cannot be used.
// Call SetDefaults before. It opens no file.
func (c *Config) Validate() error {
	parts := strings.SplitN(c.TopicARN, ":", 6)
	if len(parts) != 6 || parts[0] != "arn" || parts[2] != "sns" || parts[5] == "" || strings.ContainsAny(strings.Join(parts[:5], ""), "{}") {
		return sinkurl.Field("topic_arn", "is not a topic's ARN", "write arn:aws:sns:REGION:ACCOUNT:TOPIC")
	}
	return c.options().Validate()
}

// regionOf is the region in a topic's ARN, or empty.
func regionOf(arn string) string {
	if parts := strings.SplitN(arn, ":", 6); len(parts) == 6 {
		return parts[3]
	}
	return ""
}
