package nats

import (
	"cmp"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock/penstock/internal/settings"
	"github.com/penstock/penstock/internal/tlsconfig"
)

// Config sets where the messages go and how. The zero value of a field means
// its default; see SetDefaults.
type Config struct {
	// URL of the servers, one or several of a cluster separated by commas:
	// nats://host:4222, tls://, ws:// or wss://. It may have user:password or a
	// token. Not used with InProcess.
	URL string `yaml:"url" url:"-"`
	// Subject is the template of the subject: {topic}, {key}, {header.NAME}.
	Subject string `yaml:"subject" default:"{topic}" template:"orders.{topic}"`
	// CreateStream is the stream to create if it does not exist. Without it, the
	// operator creates streams.
	CreateStream *StreamConfig `yaml:"create_stream"`

	// CredentialsFile is a .creds file (a user's JWT and its key).
	CredentialsFile string `yaml:"credentials_file"`
	// NKeyFile holds the seed of a user's nkey.
	NKeyFile string `yaml:"nkey_file"`
	User     string `yaml:"user"`
	Password string `yaml:"password" needs:"user"`
	Token    string `yaml:"token"`
	// InboxPrefix replaces _INBOX in the subject of acknowledgements, for users
	// that may subscribe only to a certain prefix.
	InboxPrefix string    `yaml:"inbox_prefix"`
	TLS         TLSConfig `yaml:"tls"`

	// MaxPending is how many messages may wait for their acknowledgement at a time.
	// By default JetStream queues at most 100,000 per stream and refuses more.
	MaxPending int `yaml:"max_pending" default:"4096" min:"1" max:"50000"`
	// AckWait is how long a Send waits without any acknowledgement before it gives
	// up.
	AckWait time.Duration `yaml:"ack_wait" default:"5s"`
	// ConnectTimeout limits one attempt to connect to one server.
	ConnectTimeout time.Duration `yaml:"connect_timeout" default:"2s"`

	// InProcess is a running server in this process, to connect to through memory, for
	// example a *server.Server of nats-server. The sink does not stop it.
	InProcess nats.InProcessConnProvider `yaml:"-" url:"-"`
	// Embedded describes the server that the program penstock starts, for InProcess. Open
	// starts none, and refuses Embedded without InProcess.
	Embedded *EmbeddedConfig `yaml:"embedded"`
}

// StreamConfig is a stream to create. If a stream of that name exists, it is used
// unchanged.
type StreamConfig struct {
	Name string `yaml:"name"`
	// Subjects that the stream stores. They must cover every subject that Subject
	// produces. Default: the fixed words at the beginning of Subject and all that
	// follows, for example orders.> for orders.{topic}.
	Subjects []string `yaml:"subjects"`
	// Storage is file or memory.
	Storage string `yaml:"storage" default:"file" oneof:"file memory"`
	// Replicas is the number of servers that keep a copy, 1 to 5.
	Replicas int `yaml:"replicas" default:"1" min:"1" max:"5"`
	// DuplicateWindow is how long the stream remembers message ids. It drops messages
	// with these ids. The server keeps them in memory. An outage that lasts longer may store a
	// retry twice.
	DuplicateWindow time.Duration `yaml:"duplicate_window" default:"2m" min:"100ms"`
}

// TLSConfig is used with tls:// and wss:// URLs, and with nats:// as soon as a
// field is set or the server asks for TLS.
type TLSConfig = tlsconfig.Client

// EmbeddedConfig is the server that the program penstock runs in its process.
type EmbeddedConfig struct {
	// Dir is the folder of the streams. It is created if it does not exist. Only one server
	// at a time may use it.
	Dir string `yaml:"dir" url:"-" default:"penstock-nats"`
	// Listen is a loopback host:port for consumers in other processes, which need no
	// credentials. Port 0 takes a free port. If it is empty, only this process can connect.
	Listen string `yaml:"listen"`
	// SyncAlways writes each message to the disk before it is confirmed, so confirmed
	// messages survive a power cut. Without it they reach the disk within two minutes.
	SyncAlways bool `yaml:"sync_always"`
}

// SetDefaults sets the fields that are zero.
func (c *Config) SetDefaults() {
	// No operator creates a stream on the embedded server, so the sink does. A stream
	// cannot store all subjects, hence the prefix.
	if c.Embedded != nil {
		c.Subject = cmp.Or(c.Subject, "penstock.{topic}")
		if c.CreateStream == nil {
			c.CreateStream = &StreamConfig{}
		}
		c.CreateStream.Name = cmp.Or(c.CreateStream.Name, "PENSTOCK")
	} else if c.InProcess == nil {
		c.URL = cmp.Or(c.URL, "nats://127.0.0.1:4222")
	}
	settings.Defaults(c)
	if s := c.CreateStream; s != nil && len(s.Subjects) == 0 {
		s.Subjects = everythingUnder(c.Subject)
	}
}

// everythingUnder is the wildcard for a template's subjects, or "" if it begins with a
// placeholder: a stream cannot store every subject.
func everythingUnder(subject string) []string {
	fixed, _, _ := strings.Cut(subject, "{")
	if i := strings.LastIndexByte(fixed, '.'); i > 0 {
		return []string{fixed[:i] + ".>"}
	}
	if fixed == subject {
		return []string{subject}
	}
	return nil
}

// Validate returns a *penstock.FieldError for the first field that cannot be used.
// Call SetDefaults before. It opens no file.
func (c *Config) Validate() error {
	if c.InboxPrefix != "" && !validSubject(c.InboxPrefix) {
		return field("inbox_prefix", "is not a subject", "write dot-separated words, as in _INBOX_relay")
	}
	return cmp.Or(c.validPlace(), settings.Check(c), c.CreateStream.validate(), c.validLogin(), c.TLS.Validate("tls://", true))
}

func (c *Config) validPlace() error {
	switch {
	case c.Embedded != nil:
		return c.validEmbedded()
	case c.InProcess == nil:
		return validServers(c.URL)
	case c.URL != "":
		return field("url", "is set together with InProcess", "remove one of them: url is for a server elsewhere")
	case c.TLS != (TLSConfig{}):
		return field("tls", "is set together with InProcess", "remove it: the connection stays inside the process")
	}
	return nil
}

func (c *Config) validEmbedded() error {
	if c.URL != "" {
		return field("url", "is set together with embedded", "remove one of them: url is for a server elsewhere")
	}
	if c.CredentialsFile != "" || c.NKeyFile != "" || c.User != "" || c.Password != "" || c.Token != "" || c.TLS != (TLSConfig{}) {
		return field("embedded", "is set together with credentials or tls", "remove those: the connection stays inside the process")
	}
	if err := c.Embedded.Validate(); err != nil {
		return prefixed("embedded.", err)
	}
	if s := c.CreateStream; s != nil && s.Replicas > 1 {
		return field("create_stream.replicas", fmt.Sprintf("is %d", s.Replicas), "the embedded server is alone: write 1, or use a cluster through url")
	}
	return nil
}

// Validate accepts only addresses that no other machine can reach, because the
// server asks for no password.
func (c *EmbeddedConfig) Validate() error {
	if c.Listen == "" {
		return nil
	}
	bad := func(problem string) error {
		return field("listen", problem, "write host:port with a loopback host, as in 127.0.0.1:4222")
	}
	host, p, err := net.SplitHostPort(c.Listen)
	if err != nil {
		return bad("is not host:port")
	}
	if port, err := strconv.Atoi(p); err != nil || port < 0 || port > 65535 {
		return bad("has no usable port")
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return bad(fmt.Sprintf("is on %q, which other machines may reach; the embedded server has no passwords", host))
	}
	return nil
}

// validLogin accepts one way to log in, because others would be ignored silently.
func (c *Config) validLogin() error {
	var set []string
	for _, f := range []struct{ name, value string }{
		{"credentials_file", c.CredentialsFile}, {"nkey_file", c.NKeyFile}, {"user", c.User}, {"token", c.Token},
	} {
		if f.value != "" {
			set = append(set, f.name)
		}
	}
	if len(set) > 1 {
		return field(set[1], "is set together with "+set[0], "keep one way to log in")
	}
	return nil
}

func (s *StreamConfig) validate() error {
	switch {
	case s == nil:
		return nil
	case s.Name == "" || strings.ContainsAny(s.Name, ". *>/\\\t\r\n"):
		return field("create_stream.name", fmt.Sprintf("is %q", s.Name), "name the stream without spaces, dots, slashes and wildcards")
	case len(s.Subjects) == 0:
		return field("create_stream.subjects", "is empty", "list the subjects to store, as in orders.>, or let subject begin with a fixed word, as in orders.{topic}")
	}
	return nil
}

// validServers never quotes the URL: it may hold a password.
func validServers(list string) error {
	for _, server := range strings.Split(list, ",") {
		u, err := url.Parse(withScheme(strings.TrimSpace(server)))
		if err != nil || u.Hostname() == "" {
			return field("url", "is not a NATS URL", "write nats://host:4222, several servers separated by commas; in user and password write special characters as %%XX")
		}
		switch u.Scheme {
		case "nats", "tls", "ws", "wss":
		default:
			return field("url", fmt.Sprintf("has the scheme %q", u.Scheme), "write nats://, tls://, ws:// or wss://")
		}
		if u.RawQuery != "" || u.Fragment != "" {
			return field("url", "has something after the host", "write options as separate fields")
		}
	}
	return nil
}

func withScheme(server string) string {
	if strings.Contains(server, "://") {
		return server
	}
	return "nats://" + server
}

var field = settings.Field
