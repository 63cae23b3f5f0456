package kafka

import (
	"cmp"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/penstock/penstock/internal/sinkurl"
	"github.com/penstock/penstock/internal/template"
	"github.com/penstock/penstock/internal/tlsconfig"
)

// Config sets where the messages go and how. The zero value of a field means
// its default; see SetDefaults.
type Config struct {
	// URL has brokers that are asked for the others: kafka://host1:9092,host2:9092,
	// or kafkas:// for TLS. It may have a user: kafka://user:password@host.
	URL string `yaml:"url" url:"-"`
	// User and Password replace those of the URL, for secrets that are kept
	// separately.
	User     string `yaml:"user"`
	Password string `yaml:"password"`
	// SASL is how the program logs in: plain, scram-sha-256 or scram-sha-512 with User and
	// Password, oauthbearer with a token, or aws-msk-iam with credentials of AWS.
	SASL string `yaml:"sasl"`
	// OAuth sets where the token of oauthbearer comes from.
	OAuth OAuthConfig `yaml:"oauth"`
	// AWS gives the credentials of aws-msk-iam. The program sets it to the default chain
	// of AWS's SDK, which this package does not import.
	AWS AWSCredentials `yaml:"-" url:"-"`

	// Topic is a template: {topic}, {key}, {header.NAME}.
	Topic string `yaml:"topic"`
	// CreateTopics lets the broker create a topic that does not exist, with its
	// default partitions and replicas, if its auto.create.topics.enable is true.
	CreateTopics bool `yaml:"create_topics"`
	// Timestamp of the records: sent is when they are sent, created when the
	// messages were written. A topic's retention counts from it.
	Timestamp string `yaml:"timestamp"`

	// ClientID is the name of this program in the brokers' logs, metrics and quotas.
	ClientID string `yaml:"client_id"`
	// Compression of batches: none, gzip, snappy, lz4 or zstd.
	Compression string `yaml:"compression"`
	// MaxMessageBytes limits the bytes of a batch of records before compression, and so
	// of the largest message. It must not exceed the topics' max.message.bytes.
	MaxMessageBytes int `yaml:"max_message_bytes"`
	// Producers is how many Sends run at a time. Each has a separate producer, with
	// its own connections and producer id. Set it to the relay's senders.
	Producers int `yaml:"producers"`

	// ConnectTimeout limits one attempt to connect and log in.
	ConnectTimeout time.Duration `yaml:"connect_timeout"`
	// DeliveryTimeout is how long a message may wait for a leader and enough in-sync
	// replicas while brokers can be reached. If none can be reached, Sends fail at
	// once.
	DeliveryTimeout time.Duration `yaml:"delivery_timeout"`

	TLS TLSConfig `yaml:"tls"`
}

// OAuthConfig has one of TokenFile and TokenURL.
type OAuthConfig struct {
	// TokenFile has a token. It is read at each login, so it may be renewed.
	TokenFile string `yaml:"token_file"`
	// TokenURL gives a token for User and Password, which are the id and the secret of a
	// client (the grant client_credentials).
	TokenURL string `yaml:"token_url"`
	// Scope of the token that is asked for at TokenURL; several are separated by spaces.
	Scope string `yaml:"scope"`
}

// TLSConfig is used with kafkas:// URLs.
type TLSConfig = tlsconfig.Client

// Defaults.
const (
	DefaultURL             = "kafka://127.0.0.1:9092"
	DefaultTopic           = "{topic}"
	DefaultTimestamp       = timestampSent
	DefaultClientID        = "penstock"
	DefaultCompression     = "none"
	DefaultMaxMessageBytes = 1_048_588 // Kafka's own default for max.message.bytes
	DefaultProducers       = 8
	DefaultConnectTimeout  = 5 * time.Second
	DefaultDeliveryTimeout = 10 * time.Second
)

const (
	timestampSent    = "sent"
	timestampCreated = "created"
)

// Upper limits of the fields. Kafka's socket.request.max.bytes is 100 MiB by default.
const (
	maxMaxMessageBytes = 96 << 20
	maxProducers       = 64
)

// shortestTimeout is the library's minimum.
const shortestTimeout = 100 * time.Millisecond

const defaultPort = "9092"

// SetDefaults sets the fields that are zero.
func (c *Config) SetDefaults() {
	c.URL = cmp.Or(c.URL, DefaultURL)
	c.Topic = cmp.Or(c.Topic, DefaultTopic)
	c.Timestamp = cmp.Or(c.Timestamp, DefaultTimestamp)
	c.ClientID = cmp.Or(c.ClientID, DefaultClientID)
	c.Compression = cmp.Or(c.Compression, DefaultCompression)
	c.MaxMessageBytes = cmp.Or(c.MaxMessageBytes, DefaultMaxMessageBytes)
	c.Producers = cmp.Or(c.Producers, DefaultProducers)
	c.ConnectTimeout = cmp.Or(c.ConnectTimeout, DefaultConnectTimeout)
	c.DeliveryTimeout = cmp.Or(c.DeliveryTimeout, DefaultDeliveryTimeout)
}

// Validate returns a *penstock.FieldError for the first field that cannot be used.
// Call SetDefaults before. It opens no file.
func (c *Config) Validate() error {
	a, err := c.address()
	if err != nil {
		return err
	}
	if _, err := template.Parse(c.Topic); err != nil {
		return field("topic", fmt.Sprintf("cannot be used (%v)", err), "write a template such as orders.{topic}")
	}
	if err := c.validateLogin(&a); err != nil {
		return err
	}
	switch {
	case c.Timestamp != timestampSent && c.Timestamp != timestampCreated:
		return field("timestamp", fmt.Sprintf("is %q", c.Timestamp), "choose sent or created")
	case codecs[c.Compression] == nil:
		return field("compression", fmt.Sprintf("is %q", c.Compression), "choose one of none, gzip, snappy, lz4, zstd")
	case c.MaxMessageBytes < 1<<10 || c.MaxMessageBytes > maxMaxMessageBytes:
		return field("max_message_bytes", fmt.Sprintf("is %d", c.MaxMessageBytes), "choose 1024 to %d", maxMaxMessageBytes)
	case c.Producers < 1 || c.Producers > maxProducers:
		return field("producers", fmt.Sprintf("is %d", c.Producers), "choose 1 to %d", maxProducers)
	case len(c.ClientID) > 255:
		return field("client_id", "is longer than 255 bytes", "shorten it")
	case c.ConnectTimeout < shortestTimeout:
		return field("connect_timeout", fmt.Sprintf("is %v", c.ConnectTimeout), "choose %v or more", shortestTimeout)
	case c.DeliveryTimeout < shortestTimeout:
		return field("delivery_timeout", fmt.Sprintf("is %v", c.DeliveryTimeout), "choose %v or more", shortestTimeout)
	case c.TLS != (TLSConfig{}) && !a.tls:
		return field("tls", "is set, but the URL is not kafkas://", "write kafkas:// (and the port of the brokers' TLS listener)")
	}
	return c.TLS.Validate()
}

// address is the URL in parts.
type address struct {
	tls            bool
	brokers        []string // host:port, at least one
	user, password string   // those that apply
}

// address reads the URL, which net/url does not: it has several hosts. Errors
// never quote it, not even a part: a password with an unescaped slash passes
// for a port.
func (c *Config) address() (a address, err error) {
	rest, plain := strings.CutPrefix(c.URL, "kafka://")
	if !plain {
		if rest, a.tls = strings.CutPrefix(c.URL, "kafkas://"); !a.tls {
			return a, notKafka()
		}
	}
	rest = strings.TrimSuffix(rest, "/")
	if i := strings.LastIndexByte(rest, '@'); i >= 0 {
		if a.user, a.password, err = credentials(rest[:i]); err != nil {
			return a, notKafka()
		}
		rest = rest[i+1:]
	}
	for host := range strings.SplitSeq(rest, ",") {
		broker, ok := hostPort(host)
		if !ok {
			return a, notKafka()
		}
		a.brokers = append(a.brokers, broker)
	}
	if c.User != "" {
		a.user, a.password = c.User, c.Password
	}
	return a, nil
}

// hostPort adds the default port where there is none.
func hostPort(s string) (string, bool) {
	if s == "" || strings.ContainsAny(s, "/?#@ ") {
		return "", false
	}
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		host, port = strings.Trim(s, "[]"), defaultPort
		if strings.Contains(host, ":") && !strings.HasPrefix(s, "[") {
			return "", false
		}
	}
	if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 || host == "" {
		return "", false
	}
	return net.JoinHostPort(host, port), true
}

func notKafka() error {
	return field("url", "is not a Kafka URL", "write kafka://host1:9092,host2:9092 or kafkas://user:password@host:9093; in user and password write special characters as %%XX")
}

var field = sinkurl.Field
