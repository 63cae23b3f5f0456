package pubsub_test

import (
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/sink/pubsub"
)

func TestParseURL(t *testing.T) {
	got, err := pubsub.ParseURL("pubsub://my-project/a-{topic}?endpoint=http://localhost:8085&allow_private=true&concurrency=3&connect_timeout=1s&timeout=2s")
	check(t, err)
	want := pubsub.Config{Project: "my-project", Topic: "a-{topic}", Endpoint: "http://localhost:8085", AllowPrivate: true, Concurrency: 3, ConnectTimeout: time.Second, Timeout: 2 * time.Second}
	if got != want {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	got, err = pubsub.ParseURL("pubsub://example.com:my-project")
	check(t, err)
	want = pubsub.Config{Project: "example.com:my-project", Topic: "{topic}", Concurrency: 256, ConnectTimeout: 5 * time.Second, Timeout: 10 * time.Second}
	if got != want {
		t.Errorf("defaults: got %+v, want %+v", got, want)
	}
}

func TestConfigMistakes(t *testing.T) {
	for u, want := range map[string]string{
		"pubsub://":                                  "project is not a project's id",
		"pubsub://{topic}/orders":                    "project is not a project's id",
		"pubsub://p/a/b":                             `topic is "a/b"`,
		"pubsub://p/or":                              `topic is "or"`,
		"pubsub://p/{nope}":                          "topic cannot be used",
		"pubsub://p/orders?nope=1":                   "nope is not a parameter of a Pub/Sub URL: use one of allow_private",
		"pubsub://p/orders?concurrency=-1":           "concurrency is -1: choose 1 to 4096",
		"pubsub://p/orders?timeout=-1s":              "timeout is negative",
		"pubsub://p/orders?connect_timeout=-1s":      "connect_timeout is negative",
		"pubsub://p/orders?allow_private=true":       "allow_private is set without endpoint",
		"pubsub://p/orders?endpoint=localhost":       "endpoint is not a URL",
		"pubsub://p/orders?endpoint=http://10.1.2.3": "endpoint has a host that is refused (10.1.2.3 is a private address): if the endpoint is meant to be there, set allow_private",
	} {
		if _, err := pubsub.ParseURL(u); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %q", u, err, want)
		}
	}
}

// A name that leads to an address that is not public is not connected to.
func TestPrivateName(t *testing.T) {
	s, err := pubsub.Open(pubsub.Config{Project: "p", Endpoint: "http://localhost:1"}, nil)
	check(t, err)
	defer s.Close(patient(t))
	errs := s.Send(patient(t), []penstock.Message{{ID: "1", Topic: "orders"}})
	if errs == nil || !penstock.IsUnavailable(errs[0]) || !strings.Contains(errs[0].Error(), "loopback address: if the endpoint is meant to be there, set allow_private") {
		t.Error(errs)
	}
}
