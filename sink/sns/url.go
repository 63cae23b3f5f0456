package sns

import (
	"strings"

	"github.com/penstock/penstock/internal/sinkurl"
)

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
