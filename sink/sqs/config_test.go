package sqs_test

import (
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/sink/sqs"
)

func TestParseURL(t *testing.T) {
	got, err := sqs.ParseURL("sqs://localhost:9324/000000000000/{topic}.fifo?region=eu-north-1&profile=p&endpoint=http://localhost:9324&allow_private=true&envelope=true" +
		"&max_message_bytes=262144&concurrency=3&connect_timeout=1s&timeout=2s")
	check(t, err)
	want := sqs.Config{
		QueueURL: "https://localhost:9324/000000000000/{topic}.fifo", Settings: sqs.Settings{Region: "eu-north-1", Profile: "p", Endpoint: "http://localhost:9324", AllowPrivate: true, Envelope: true, MaxMessageBytes: 262144, Concurrency: 3, ConnectTimeout: time.Second, Timeout: 2 * time.Second},
	}
	if got != want {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	got, err = sqs.ParseURL("sqs://sqs.eu-west-1.amazonaws.com/123456789012/orders")
	check(t, err)
	want = sqs.Config{
		QueueURL: "https://sqs.eu-west-1.amazonaws.com/123456789012/orders", Settings: sqs.Settings{Region: "eu-west-1", MaxMessageBytes: 1 << 20, Concurrency: 32, ConnectTimeout: 5 * time.Second, Timeout: 10 * time.Second},
	}
	if got != want {
		t.Errorf("defaults: got %+v, want %+v", got, want)
	}
}

func TestConfigMistakes(t *testing.T) {
	const queue = "sqs://sqs.eu-west-1.amazonaws.com/1/q"
	for u, want := range map[string]string{
		"sqs://orders":                       "queue_url is not a queue's URL",
		"sqs://{topic}/1/q":                  "queue_url is not a queue's URL",
		queue + "{nope}":                     "queue_url cannot be used",
		queue + "?nope=1":                    "nope is not a parameter of an SQS URL: use one of allow_private",
		queue + "?max_message_bytes=1048577": "max_message_bytes is 1048577: choose 1024 to 1048576",
		queue + "?max_message_bytes=1":       "max_message_bytes is 1:",
		queue + "?concurrency=-1":            "concurrency is -1",
		queue + "?timeout=-1s":               "timeout is negative",
		queue + "?connect_timeout=-1s":       "connect_timeout is negative",
		queue + "?allow_private=true":        "allow_private is set without endpoint",
		queue + "?endpoint=localhost":        "endpoint is not a URL",
		queue + "?endpoint=http://me:pw@x":   "endpoint is not a URL",
		queue + "?endpoint=http://127.0.0.1": "endpoint has a host that is refused (127.0.0.1 is a loopback address): if the endpoint is meant to be there, set allow_private",
		queue + "?endpoint=http://10.1.2.3":  "a private address",
	} {
		if _, err := sqs.ParseURL(u); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %q", u, err, want)
		}
	}
}
