package sqs

import (
	"strings"

	"github.com/penstock/penstock/internal/sinkurl"
)

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
