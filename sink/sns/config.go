package sns

import (
	"cmp"
	"strings"

	"github.com/penstock/penstock/internal/amazon"
	"github.com/penstock/penstock/internal/settings"
	"github.com/penstock/penstock/internal/sinkurl"
)

// Config sets where the messages go and how. The zero value of a field means
// its default; see SetDefaults. Credentials are not in it: they come from the
// default chain of the SDK.
type Config struct {
	// TopicARN is the ARN of the topic. Its name is a template: {topic}, {key}, {header.NAME}.
	// In values, characters that names of topics cannot have become hyphens. A name that
	// ends in .fifo is a FIFO topic.
	TopicARN string `yaml:"topic_arn" url:"-" template:"arn:aws:sns:REGION:ACCOUNT:{topic}"`
	Settings `yaml:",inline"`
}

// Settings are those that the sink shares with that of SQS.
type Settings = amazon.Settings

// SetDefaults sets the fields that are zero.
func (c *Config) SetDefaults() {
	settings.Defaults(c)
	c.MaxMessageBytes = cmp.Or(c.MaxMessageBytes, 256<<10) // of topics that are not configured otherwise
	c.Region = cmp.Or(c.Region, regionOf(c.TopicARN))
}

// Validate returns a *penstock.FieldError for the first field that cannot be used.
// Call SetDefaults before. It opens no file.
func (c *Config) Validate() error {
	parts := strings.SplitN(c.TopicARN, ":", 6)
	if len(parts) != 6 || parts[0] != "arn" || parts[2] != "sns" || parts[5] == "" || strings.ContainsAny(strings.Join(parts[:5], ""), "{}") {
		return settings.Field("topic_arn", "is not a topic's ARN", "write arn:aws:sns:REGION:ACCOUNT:TOPIC")
	}
	return amazon.Check(c, &c.Settings)
}

// regionOf is the region in a topic's ARN, or empty.
func regionOf(arn string) string {
	if parts := strings.SplitN(arn, ":", 6); len(parts) == 6 {
		return parts[3]
	}
	return ""
}

// ParseURL reads a Config from one line, for a command line. It is the ARN of the topic with sns://
// in front:
//
//	sns://arn:aws:sns:eu-west-1:123456789012:orders.fifo
//	sns://arn:aws:sns:eu-west-1:000000000000:{topic}?endpoint=http://localhost:5000&allow_private=true
//
// Query parameters are the other fields of the YAML form. The result has its defaults set and is
// valid.
func ParseURL(u string) (Config, error) {
	arn, query, _ := strings.Cut(u, "?")
	_, arn, _ = strings.Cut(arn, "://")
	return sinkurl.Read(Config{TopicARN: arn}, query, "an SNS URL")
}
