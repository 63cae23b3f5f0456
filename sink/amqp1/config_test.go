package amqp1_test

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/sink/amqp1"
)

func TestParseURL(t *testing.T) {
	got, err := amqp1.ParseURL("amqps1://me:p%40ss@mq.example:5700?address=a/{topic}&capability=topic&connect_timeout=1s&timeout=2s&user=u&password=p" +
		"&tls.ca_file=ca&tls.cert_file=c&tls.key_file=k&tls.server_name=n&tls.dangerously_skip_certificate_check=true")
	check(t, err)
	want := amqp1.Config{
		URL: "amqps1://me:p%40ss@mq.example:5700", User: "u", Password: "p", Address: "a/{topic}", Capability: "topic", ConnectTimeout: time.Second, Timeout: 2 * time.Second,
		TLS: amqp1.TLSConfig{CAFile: "ca", CertFile: "c", KeyFile: "k", ServerName: "n", DangerouslySkipCertificateCheck: true},
	}
	if got != want {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	got, err = amqp1.ParseURL("amqp1://localhost")
	check(t, err)
	want = amqp1.Config{URL: "amqp1://localhost", Address: "{topic}", Capability: "queue", ConnectTimeout: 5 * time.Second, Timeout: 30 * time.Second}
	if got != want {
		t.Errorf("defaults: got %+v, want %+v", got, want)
	}
}

func TestConfigMistakes(t *testing.T) {
	for u, want := range map[string]string{
		"amqp://a":                       "url is not a URL of AMQP 1.0",
		"amqp1://":                       "url is not a URL of AMQP 1.0",
		"amqp1://a/orders":               "url is not a URL of AMQP 1.0",
		"amqp1://a?queue=x":              "queue is not a parameter of a URL of AMQP 1.0: use one of address",
		"amqp1://a?address={nope}":       "address cannot be used",
		"amqp1://a?capability=exchange":  `capability is "exchange": choose queue, topic or none`,
		"amqp1://a?password=p":           "password is set without user",
		"amqp1://a?connect_timeout=-1s":  "connect_timeout is negative",
		"amqp1://a?timeout=-1s":          "timeout is negative",
		"amqp1://a?tls.ca_file=ca":       "tls is set, but the URL is not amqps1://",
		"amqps1://a?tls.cert_file=c":     "tls has only one of cert_file and key_file",
		"amqp1://me:pass?wordy@a":        "write special characters as %XX",
		"amqp1://me:pass/wordy@a":        "write special characters as %XX",
		"amqp1://me:pass%wordy@a":        "write special characters as %XX",
		"amqp1://me:pass wordy@a?x=%zz":  "write special characters as %XX",
		"amqp1://me:pass-wordy@:port/q#": "write special characters as %XX",
	} {
		_, err := amqp1.ParseURL(u)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %q", u, err, want)
		} else if strings.Contains(err.Error(), "wordy") {
			t.Errorf("the error shows the password: %v", err)
		}
	}
}

// Files are read when the sink is opened, not when the first connection is made.
func TestOpenReadsFiles(t *testing.T) {
	cfg := amqp1.Config{URL: "amqps1://localhost", TLS: amqp1.TLSConfig{CAFile: "/does/not/exist"}}
	if _, err := amqp1.Open(cfg, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "tls.ca_file cannot be read") {
		t.Error(err)
	}
}
