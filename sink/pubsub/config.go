package pubsub

import (
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/internal/publicaddr"
	"github.com/penstock/penstock/internal/settings"
	"github.com/penstock/penstock/internal/sinkurl"
	"github.com/penstock/penstock/internal/template"
)

// Config sets where the messages go and how. The zero value of a field means
// its default; see SetDefaults. Credentials are not in it: they are Google's
// application default credentials.
type Config struct {
	// Project that has the topics.
	Project string `yaml:"project" url:"-"`
	// Topic is a template of the topic's name: {topic}, {key}, {header.NAME}. In values,
	// characters that names of topics cannot have become hyphens.
	Topic string `yaml:"topic" url:"-" default:"{topic}" template:"orders-{topic}"`
	// Endpoint replaces the address of the service: https://REGION-pubsub.googleapis.com for one
	// region, or http://host:port for an emulator, without TLS and credentials.
	Endpoint string `yaml:"endpoint"`
	// AllowPrivate permits an Endpoint whose address is not public.
	AllowPrivate bool `yaml:"allow_private" needs:"endpoint"`

	// Concurrency is how many requests may be under way in all Sends together.
	Concurrency int `yaml:"concurrency" default:"256" min:"1" max:"4096"`
	// ConnectTimeout limits one attempt to connect.
	ConnectTimeout time.Duration `yaml:"connect_timeout" default:"5s"`
	// Timeout limits a request.
	Timeout time.Duration `yaml:"timeout" default:"10s"`
}

// SetDefaults sets the fields that are zero.
func (c *Config) SetDefaults() { settings.Defaults(c) }

// Validate returns a *penstock.FieldError for the first field that cannot be used.
// Call SetDefaults before. It opens no file.
func (c *Config) Validate() error {
	if c.Project == "" || strings.IndexFunc(c.Project, func(r rune) bool { return !named(r) && r != ':' }) >= 0 {
		return field("project", "is not a project's id", "write pubsub://PROJECT/TOPIC")
	}
	if err := settings.Check(c); err != nil {
		return err
	}
	topic, err := template.Parse(c.Topic)
	if err != nil {
		return err
	}
	if name, _ := topic.Execute(&penstock.Message{}); strings.Contains(c.Topic, "/") || topic.Fixed() && !topicName.MatchString(name) {
		return field("topic", fmt.Sprintf("is %q", c.Topic), "write the name of a topic alone: 3 to 255 letters, digits and -_.~+%%, with a letter at the beginning")
	}
	if c.Endpoint != "" {
		_, err = c.permitted().Endpoint(c.Endpoint)
	}
	return err
}

func (c *Config) permitted() *publicaddr.Permitted { return &publicaddr.Permitted{All: c.AllowPrivate} }

var topicName = regexp.MustCompile(`^[a-zA-Z][\w.~+%-]{2,254}$`)

// named reports whether r may be in the name of a topic.
func named(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_.~+%", r)
}

var field = settings.Field

// ParseURL reads a Config from one line, for a command line:
//
//	pubsub://my-project/orders
//	pubsub://my-project/{topic}?endpoint=http://localhost:8085&allow_private=true
//
// Query parameters are the other fields of the YAML form. The result has its defaults set and is
// valid.
func ParseURL(u string) (Config, error) {
	path, query, _ := strings.Cut(u, "?")
	_, path, _ = strings.Cut(path, "://")
	var c Config
	c.Project, c.Topic, _ = strings.Cut(path, "/")
	return sinkurl.Read(c, query, "a Pub/Sub URL")
}
