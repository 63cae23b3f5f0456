package sqs

import (
	"cmp"
	"net/url"
	"slices"
	"strings"

	"github.com/penstock/penstock/internal/amazon"
	"github.com/penstock/penstock/internal/settings"
	"github.com/penstock/penstock/internal/sinkurl"
)

// Config sets where the messages go and how. The zero value of a field means
// its default; see SetDefaults. Credentials are not in it: they come from the
// default chain of the SDK.
type Config struct {
	// QueueURL is the URL of the queue. Its path is a template: {topic}, {key}, {header.NAME}.
	// In values, characters that names of queues cannot have become hyphens. A name that
	// ends in .fifo is a FIFO queue.
	QueueURL string `yaml:"queue_url" url:"-" template:"https://sqs.REGION.amazonaws.com/ACCOUNT/{topic}"`
	Settings `yaml:",inline"`
}

// Settings are those that the sink shares with that of SNS.
type Settings = amazon.Settings

// SetDefaults sets the fields that are zero.
func (c *Config) SetDefaults() {
	settings.Defaults(c)
	c.MaxMessageBytes = cmp.Or(c.MaxMessageBytes, amazon.MaxBytes)
	c.Region = cmp.Or(c.Region, regionOf(c.QueueURL))
}

// Validate returns a *penstock.FieldError for the first field that cannot be used.
// Call SetDefaults before. It opens no file.
func (c *Config) Validate() error {
	u, err := url.Parse(c.QueueURL)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Hostname() == "" || strings.ContainsAny(u.Host, "{}") || strings.Count(u.Path, "/") < 2 {
		return settings.Field("queue_url", "is not a queue's URL", "write https://sqs.REGION.amazonaws.com/ACCOUNT/QUEUE, or sqs:// and the same")
	}
	return amazon.Check(c, &c.Settings)
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

// ParseURL reads a Config from one line, for a command line. It is the URL of the queue with sqs://
// in front:
//
//	sqs://sqs.eu-west-1.amazonaws.com/123456789012/orders.fifo
//	sqs://localhost:9324/000000000000/{topic}?endpoint=http://localhost:9324&allow_private=true
//
// Query parameters are the other fields of the YAML form. The result has its defaults set and is
// valid.
func ParseURL(u string) (Config, error) {
	queue, query, _ := strings.Cut(u, "?")
	_, queue, _ = strings.Cut(queue, "://")
	return sinkurl.Read(Config{QueueURL: "https://" + queue}, query, "an SQS URL")
}
