package nats_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock"
	"github.com/penstock/penstock/sink/nats"
)

func TestParseURL(t *testing.T) {
	for in, want := range map[string]nats.Config{
		"nats://h:4222": {URL: "nats://h:4222", Subject: "{topic}"},
		"nats://u:p%40@a:1,b:2/?subject=orders.{topic}&max_pending=7&ack_wait=3s&tls.ca_file=ca.pem&inbox_prefix=_X": {
			URL: "nats://u:p%40@a:1,b:2", Subject: "orders.{topic}", MaxPending: 7, AckWait: 3 * time.Second,
			TLS: nats.TLSConfig{CAFile: "ca.pem"}, InboxPrefix: "_X",
		},
		"tls://h?credentials_file=r.creds&connect_timeout=1s": {
			URL: "tls://h", Subject: "{topic}", CredentialsFile: "r.creds", ConnectTimeout: time.Second,
		},
		"nats://h?create_stream.name=S&subject=a.b.{key}": {
			URL: "nats://h", Subject: "a.b.{key}",
			CreateStream: &nats.StreamConfig{Name: "S", Subjects: []string{"a.b.>"}, Storage: "file", Replicas: 1, DuplicateWindow: 2 * time.Minute},
		},
		"nats://h?create_stream.name=S&create_stream.subjects=a.>,b&create_stream.storage=memory&create_stream.replicas=3&create_stream.duplicate_window=1m": {
			URL: "nats://h", Subject: "{topic}",
			CreateStream: &nats.StreamConfig{Name: "S", Subjects: []string{"a.>", "b"}, Storage: "memory", Replicas: 3, DuplicateWindow: time.Minute},
		},
		"embedded": {
			Embedded: &nats.EmbeddedConfig{Dir: "penstock-nats"}, Subject: "penstock.{topic}",
			CreateStream: &nats.StreamConfig{Name: "PENSTOCK", Subjects: []string{"penstock.>"}, Storage: "file", Replicas: 1, DuplicateWindow: 2 * time.Minute},
		},
		"embedded:/var/lib/x?sync_always=true&listen=localhost:4222&subject=o.{topic}": {
			Embedded: &nats.EmbeddedConfig{Dir: "/var/lib/x", Listen: "localhost:4222", SyncAlways: true}, Subject: "o.{topic}",
			CreateStream: &nats.StreamConfig{Name: "PENSTOCK", Subjects: []string{"o.>"}, Storage: "file", Replicas: 1, DuplicateWindow: 2 * time.Minute},
		},
	} {
		if want.MaxPending == 0 {
			want.MaxPending = 4096
		}
		if want.AckWait == 0 {
			want.AckWait = 5 * time.Second
		}
		if want.ConnectTimeout == 0 {
			want.ConnectTimeout = 2 * time.Second
		}
		got, err := nats.ParseURL(in)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s:\n got %+v, %v\nwant %+v", in, got, err, want)
		}
	}
}

// Every mistake names its field and the correct value; none shows the password.
func TestBadURLs(t *testing.T) {
	const secret = "s3cret"
	for in, want := range map[string]struct{ field, hint string }{
		"http://u:s3cret@h":                 {"url", "nats://"},
		"nats://u:s3cret@":                  {"url", "nats://host:4222"},
		"nats://u:s3cret%zz@h":              {"url", "%XX"},
		"nats://u:s3cret@h:port":            {"url", "nats://host:4222"},
		"nats://u:s3cret@h#x":               {"url", "separate fields"},
		"":                                  {"", ""}, // the default server
		"nats://h?subjet=x":                 {"subjet", "subject"},
		"nats://h?subject=a&subject=b":      {"subject", "once"},
		"nats://h?subject={topic":           {"subject", "{topic}"},
		"nats://h?max_pending=many":         {"max_pending", "whole number"},
		"nats://h?max_pending=-1":           {"max_pending", "choose 1 to"},
		"nats://h?ack_wait=5":               {"ack_wait", "duration"},
		"nats://h?ack_wait=-5s":             {"ack_wait", "duration"},
		"nats://h?connect_timeout=-5s":      {"connect_timeout", "duration"},
		"nats://h?inbox_prefix=a..b":        {"inbox_prefix", "words"},
		"nats://h?token=s3cret&user=u":      {"token", "one way to log in"},
		"nats://h?password=s3cret":          {"password", "set user"},
		"nats://h?tls.cert_file=c":          {"tls", "set both"},
		"nats://h?create_stream.replicas=2": {"create_stream.name", "name the stream"},
		"nats://h?create_stream.name=a.b":   {"create_stream.name", "without"},
		"nats://h?create_stream.name=S":     {"create_stream.subjects", "orders.>"},
		"nats://h?create_stream.name=S&subject=a&create_stream.storage=tape":         {"create_stream.storage", "file or memory"},
		"nats://h?create_stream.name=S&subject=a&create_stream.replicas=7":           {"create_stream.replicas", "1 to 5"},
		"nats://h?create_stream.name=S&subject=a&create_stream.duplicate_window=1ms": {"create_stream.duplicate_window", "100ms"},
		"nats://h?listen=127.0.0.1:1":                                                {"listen", "subject"},
		"nats://h?embedded.listen=127.0.0.1:1":                                       {"embedded.listen", "embedded:DIR"},
		"embedded:d?listen=0.0.0.0:4222":                                             {"embedded.listen", "loopback"},
		"embedded:d?listen=4222":                                                     {"embedded.listen", "host:port"},
		"embedded:d?listen=localhost:x":                                              {"embedded.listen", "host:port"},
		"embedded:d?sync_always=often":                                               {"embedded.sync_always", "true or false"},
		"embedded:d?token=s3cret":                                                    {"embedded", "inside the process"},
		"embedded:d?create_stream.replicas=3":                                        {"create_stream.replicas", "alone"},
		"embedded:d?subject={topic}":                                                 {"create_stream.subjects", "fixed word"},
		"embeddedd":                                                                  {"", ""}, // a host of that name
	} {
		_, err := nats.ParseURL(in)
		if want.field == "" {
			if err != nil {
				t.Errorf("%q: %v", in, err)
			}
			continue
		}
		var f *penstock.FieldError
		if !errors.As(err, &f) {
			t.Errorf("%q: %v, want a FieldError for %s", in, err, want.field)
			continue
		}
		if f.Field != want.field || !strings.Contains(f.Hint, want.hint) {
			t.Errorf("%q: %v, want field %s and a hint with %q", in, err, want.field, want.hint)
		}
		if strings.Contains(err.Error(), secret) {
			t.Errorf("%q: the password shows in %q", in, err)
		}
	}
	both := nats.Config{URL: "nats://h", Embedded: &nats.EmbeddedConfig{}}
	both.SetDefaults()
	if err := both.Validate(); err == nil || !strings.Contains(err.Error(), "url") {
		t.Errorf("url beside embedded: %v", err)
	}
}

// Files that cannot be read are reported at Open, not at the first message.
func TestMissingFiles(t *testing.T) {
	for name, cfg := range map[string]nats.Config{
		"credentials_file": {CredentialsFile: "/does/not/exist"},
		"nkey_file":        {NKeyFile: "/does/not/exist"},
		"tls.ca_file":      {TLS: nats.TLSConfig{CAFile: "/does/not/exist"}},
		"tls.cert_file":    {TLS: nats.TLSConfig{CertFile: "/does/not/exist", KeyFile: "/neither"}},
	} {
		s, err := nats.Open(cfg, nil)
		if err == nil {
			t.Errorf("%s: opened", name)
			s.Close(t.Context())
			continue
		}
		if !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
