package kafka

import (
	"cmp"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/penstock/penstock/internal/settings"
	"github.com/penstock/penstock/internal/tlsconfig"
)

// Config sets where the messages go and how. The zero value of a field means
// its default; see SetDefaults.
type Config struct {
	// URL has brokers that are asked for the others: kafka://host1:9092,host2:9092,
	// or kafkas:// for TLS. It may have a user: kafka://user:password@host.
	URL string `yaml:"url" url:"-" default:"kafka://127.0.0.1:9092"`
	// User and Password replace those of the URL, for secrets that are kept
	// separately.
	User     string `yaml:"user"`
	Password string `yaml:"password" needs:"user"`
	// SASL is how the program logs in: plain, scram-sha-256 or scram-sha-512 with User and
	// Password, oauthbearer with a token, or aws-msk-iam with credentials of AWS.
	SASL string `yaml:"sasl"`
	// OAuth sets where the token of oauthbearer comes from.
	OAuth OAuthConfig `yaml:"oauth"`
	// AWS gives the credentials of aws-msk-iam. The program sets it to the default chain
	// of AWS's SDK, which this package does not import.
	AWS AWSCredentials `yaml:"-" url:"-"`

	// Topic is a template: {topic}, {key}, {header.NAME}.
	Topic string `yaml:"topic" default:"{topic}" template:"orders.{topic}"`
	// CreateTopics lets the broker create a topic that does not exist, with its
	// default partitions and replicas, if its auto.create.topics.enable is true.
	CreateTopics bool `yaml:"create_topics"`
	// Timestamp of the records: sent is when they are sent, created when the
	// messages were written. A topic's retention counts from it.
	Timestamp string `yaml:"timestamp" default:"sent" oneof:"sent created"`

	// ClientID is the name of this program in the brokers' logs, metrics and quotas.
	ClientID string `yaml:"client_id" default:"penstock"`
	// Compression of batches: none, gzip, snappy, lz4 or zstd.
	Compression string `yaml:"compression" default:"none" oneof:"none gzip snappy lz4 zstd"`
	// MaxMessageBytes limits the bytes of a batch of records before compression, and so
	// of the largest message. It must not exceed the topics' max.message.bytes, whose default in Kafka is the same. Kafka's
	// socket.request.max.bytes is 100 MiB by default.
	MaxMessageBytes int `yaml:"max_message_bytes" default:"1048588" min:"1024" max:"100663296"`
	// Producers is how many Sends run at a time. Each has a separate producer, with
	// its own connections and producer id. Set it to the relay's senders.
	Producers int `yaml:"producers" default:"8" min:"1" max:"64"`

	// ConnectTimeout limits one attempt to connect and log in.
	ConnectTimeout time.Duration `yaml:"connect_timeout" default:"5s" min:"100ms"`
	// DeliveryTimeout is how long a message may wait for a leader and enough in-sync
	// replicas while brokers can be reached. If none can be reached, Sends fail at
	// once.
	DeliveryTimeout time.Duration `yaml:"delivery_timeout" default:"10s" min:"100ms"`

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

const (
	timestampCreated = "created"
	defaultPort      = "9092"
)

// SetDefaults sets the fields that are zero.
func (c *Config) SetDefaults() { settings.Defaults(c) }

// Validate returns a *penstock.FieldError for the first field that cannot be used.
// Call SetDefaults before. It opens no file.
func (c *Config) Validate() error {
	a, err := c.address()
	if err := cmp.Or(err, settings.Check(c)); err != nil {
		return err
	}
	if len(c.ClientID) > 255 {
		return field("client_id", "is longer than 255 bytes", "shorten it")
	}
	return cmp.Or(c.validateLogin(&a), c.TLS.Validate("kafkas://", a.tls))
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

var field = settings.Field
