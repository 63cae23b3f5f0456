package rabbitmq_test

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/sink/rabbitmq"
)

func TestParseURL(t *testing.T) {
	got, err := rabbitmq.ParseURL("amqps://me:p%40ss@mq.example:5671/shop?exchange=x&routing_key=a.{topic}&created_at_header=true" +
		"&channels=3&max_pending=10&connect_timeout=1s&heartbeat=2s&user=u&password=p" +
		"&tls.ca_file=ca&tls.cert_file=c&tls.key_file=k&tls.server_name=n&tls.dangerously_skip_certificate_check=true")
	check(t, err)
	want := rabbitmq.Config{
		URL: "amqps://me:p%40ss@mq.example:5671/shop", User: "u", Password: "p",
		Exchange: "x", RoutingKey: "a.{topic}", CreatedAtHeader: true, Channels: 3, MaxPending: 10,
		ConnectTimeout: time.Second, Heartbeat: 2 * time.Second,
		TLS: rabbitmq.TLSConfig{CAFile: "ca", CertFile: "c", KeyFile: "k", ServerName: "n", DangerouslySkipCertificateCheck: true},
	}
	if got != want {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}

	got, err = rabbitmq.ParseURL("amqp://localhost?declare_queue=orders")
	check(t, err)
	want = rabbitmq.Config{
		URL: "amqp://localhost", DeclareQueue: "orders", RoutingKey: "orders", Channels: 1,
		MaxPending: 4096, ConnectTimeout: 5 * time.Second, Heartbeat: 10 * time.Second,
	}
	if got != want {
		t.Errorf("defaults: got %+v, want %+v", got, want)
	}
}

func TestConfigMistakes(t *testing.T) {
	for u, want := range map[string]string{
		"amqp://localhost#timeout=1s":                                "url has options after the server: write them as separate fields, or in one line behind a ?",
		"http://localhost":                                           "url is not an AMQP URL",
		"amqp://localhost?topic=x":                                   "topic is not a parameter of an AMQP URL: use one of channels",
		"amqp://localhost?channels=many":                             `channels is "many": write a whole number`,
		"amqp://localhost?channels=65":                               "channels is 65: choose 1 to 64",
		"amqp://localhost?max_pending=-1":                            "max_pending is -1: choose 1 to 65536",
		"amqp://localhost?channels=1&channels=2":                     "channels is given twice",
		"amqp://localhost?heartbeat=10":                              `heartbeat is "10": write a duration such as`,
		"amqp://localhost?heartbeat=10ms":                            "heartbeat is 10ms: choose 1s or more",
		"amqp://localhost?connect_timeout=-1s":                       "connect_timeout is negative",
		"amqp://localhost?created_at_header=yes":                     `created_at_header is "yes": write true or false`,
		"amqp://localhost?routing_key={nope}":                        "routing_key cannot be used",
		"amqp://localhost?declare_queue=q&exchange=x":                "declare_queue is set together with exchange",
		"amqp://localhost?password=p":                                "password is set without user",
		"amqp://localhost?tls.ca_file=ca":                            "tls is set, but the URL is not amqps://",
		"amqps://localhost?tls.cert_file=c":                          "tls has only one of cert_file and key_file",
		"amqp://localhost?exchange=" + strings.Repeat("x", 256):      "exchange is longer than 255 bytes",
		"amqp://localhost?declare_queue=" + strings.Repeat("x", 256): "declare_queue is longer than 255 bytes",
		"amqp://localhost?routing_key=%zz":                           "url has parameters that cannot be read",
	} {
		if _, err := rabbitmq.ParseURL(u); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: %v; want %q", u, err, want)
		}
	}
}

// Files are read when the sink is opened, not when the first connection is made.
func TestOpenReadsFiles(t *testing.T) {
	cfg := rabbitmq.Config{URL: "amqps://localhost", TLS: rabbitmq.TLSConfig{CAFile: "/does/not/exist"}}
	if _, err := rabbitmq.Open(cfg, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "tls.ca_file cannot be read") {
		t.Error(err)
	}
}

// Several hosts are separated, and none may be empty.
func TestSeveralHosts(t *testing.T) {
	for u, ok := range map[string]bool{
		"amqp://me:pw@a:5672,b:5673/shop": true, "amqps://a,b": true, "amqp://a,[::1]:5672,b/": true, "amqp://a,b?declare_queue=q": true, "amqp://x,y:z@a,b": true,
		"amqp://a,,b": false, "amqp://a,": false, "amqp://,a": false, "amqp://a,b:port": false, "amqp://a,amqp://b": false,
	} {
		if _, err := rabbitmq.ParseURL(u); (err == nil) != ok {
			t.Errorf("%s: %v", u, err)
		}
	}
}

// An unescaped password is parsed as a port, a path or a fragment, and the errors of URL parsers
// quote those.
func TestMistakenURLKeepsItsPassword(t *testing.T) {
	for _, u := range []string{
		"amqp://me:pass/wordy@localhost", "amqp://me:pass#wordy@localhost", "amqp://me:pass?wordy@localhost",
		"amqp://me:pass%wordy@localhost", "amqp://me:pass wordy@localhost", "://me:pass-wordy@localhost",
	} {
		if _, err := rabbitmq.ParseURL(u); err == nil {
			t.Errorf("%s was accepted", u)
		} else if strings.Contains(err.Error(), "pass") && !strings.Contains(err.Error(), "password") || strings.Contains(err.Error(), "wordy") {
			t.Errorf("the error shows the password: %v", err)
		}
	}
}
