package sns_test

import (
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/sink/sns"
)

func TestParseURL(t *testing.T) {
	got, err := sns.ParseURL("sns://arn:aws:sns:eu-west-1:123456789012:{topic}.fifo?region=eu-north-1&profile=p&endpoint=http://localhost:5000&allow_private=true&envelope=true" +
		"&max_message_bytes=1048576&concurrency=3&connect_timeout=1s&timeout=2s")
	check(t, err)
	want := sns.Config{
		TopicARN: "arn:aws:sns:eu-west-1:123456789012:{topic}.fifo", Settings: sns.Settings{Region: "eu-north-1", Profile: "p", Endpoint: "http://localhost:5000", AllowPrivate: true, Envelope: true, MaxMessageBytes: 1 << 20, Concurrency: 3, ConnectTimeout: time.Second, Timeout: 2 * time.Second},
	}
	if got != want {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	got, err = sns.ParseURL("sns://arn:aws:sns:eu-west-1:123456789012:orders")
	check(t, err)
	if got.Region != "eu-west-1" || got.MaxMessageBytes != 256<<10 {
		t.Errorf("defaults: %+v", got)
	}
}

func TestConfigMistakes(t *testing.T) {
	const topic = "sns://arn:aws:sns:eu-west-1:1:t"
	for u, want := range map[string]string{
		"sns://orders":                      "topic_arn is not a topic's ARN",
		"sns://arn:aws:sqs:eu-west-1:1:t":   "topic_arn is not a topic's ARN",
		"sns://arn:aws:sns:{topic}:1:t":     "topic_arn is not a topic's ARN",
		topic + "{nope}":                    "topic_arn cannot be used",
		topic + "?nope=1":                   "nope is not a parameter of an SNS URL: use one of allow_private",
		topic + "?endpoint=http://10.0.0.1": "a private address",
	} {
		if _, err := sns.ParseURL(u); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %q", u, err, want)
		}
	}
}
