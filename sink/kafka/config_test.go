package kafka_test

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/sink/kafka"
)

func TestParseURL(t *testing.T) {
	got, err := kafka.ParseURL("kafkas://me:p%40ss@k1.example,k2.example:9094,[::1]:9095/?topic=orders.{topic}&create_topics=true&timestamp=created" +
		"&sasl=scram-sha-256&client_id=shop&compression=zstd&max_message_bytes=2048&producers=3&connect_timeout=1s&delivery_timeout=2s" +
		"&tls.ca_file=ca&tls.cert_file=c&tls.key_file=k&tls.server_name=n&tls.dangerously_skip_certificate_check=true")
	check(t, err)
	want := kafka.Config{
		URL: "kafkas://me:p%40ss@k1.example,k2.example:9094,[::1]:9095/", SASL: "scram-sha-256", Topic: "orders.{topic}", CreateTopics: true,
		Timestamp: "created", ClientID: "shop", Compression: "zstd", MaxMessageBytes: 2048, Producers: 3,
		ConnectTimeout: time.Second, DeliveryTimeout: 2 * time.Second,
		TLS: kafka.TLSConfig{CAFile: "ca", CertFile: "c", KeyFile: "k", ServerName: "n", DangerouslySkipCertificateCheck: true},
	}
	if got != want {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}

	got, err = kafka.ParseURL("kafka://localhost")
	check(t, err)
	want = kafka.Config{
		URL: "kafka://localhost", Topic: "{topic}", Timestamp: "sent", ClientID: "penstock", Compression: "none",
		MaxMessageBytes: 1_048_588, Producers: 8,
		ConnectTimeout: 5 * time.Second, DeliveryTimeout: 10 * time.Second,
	}
	if got != want {
		t.Errorf("defaults: got %+v, want %+v", got, want)
	}
}

func TestConfigMistakes(t *testing.T) {
	for u, want := range map[string]string{
		"http://localhost":                  "url is not a Kafka URL",
		"kafka://":                          "url is not a Kafka URL",
		"kafka://a,,b":                      "url is not a Kafka URL",
		"kafka://a:port":                    "url is not a Kafka URL",
		"kafka://a:70000":                   "url is not a Kafka URL",
		"kafka://a/topic":                   "url is not a Kafka URL",
		"kafka://::1":                       "url is not a Kafka URL",
		"kafka://a?routing_key=x":           "routing_key is not a parameter of a Kafka URL: use one of client_id",
		"kafka://a?producers=many":          `producers is "many": write a whole number`,
		"kafka://a?producers=65":            "producers is 65: choose 1 to 64",
		"kafka://a?producers=1&producers=2": "producers is given twice",
		"kafka://a?max_message_bytes=100":   "max_message_bytes is 100: choose 1024 to",
		"kafka://a?connect_timeout=10":      `connect_timeout is "10": write a duration such as`,
		"kafka://a?connect_timeout=-1s":     "connect_timeout is -1s: choose 100ms or more",
		"kafka://a?delivery_timeout=1ms":    "delivery_timeout is 1ms: choose 100ms or more",
		"kafka://a?create_topics=yes":       `create_topics is "yes": write true or false`,
		"kafka://a?topic={nope}":            "topic cannot be used",
		"kafka://a?compression=rar":         `compression is "rar": choose none, gzip`,
		"kafka://a?timestamp=now":           `timestamp is "now": choose sent or created`,
		"kafka://a?password=p":              "password is set without user",
		"kafka://me@a":                      "user is set without password",
		"kafka://me:p@a":                    "sasl is not set, but there is a user",
		"kafka://me:p@a?sasl=gssapi":        `sasl is "gssapi": choose one of plain, scram-sha-256, scram-sha-512, oauthbearer, aws-msk-iam`,
		"kafka://a?sasl=plain":              "sasl is set without user",
		"kafka://a?sasl=oauthbearer":        "oauth does not say where the token comes from",
		"kafka://a?sasl=oauthbearer&oauth.token_url=https://x&oauth.token_file=t": "oauth does not say where the token comes from",
		"kafka://a?sasl=oauthbearer&oauth.token_file=t&oauth.scope=s":             "oauth.token_file is set with a user or a scope",
		"kafka://a?sasl=oauthbearer&oauth.token_url=https://x":                    "oauth.token_url is set without user",
		"kafka://me:p@a?sasl=oauthbearer&oauth.token_url=x":                       "oauth.token_url is not a URL",
		"kafka://a?oauth.token_file=t":                                            "oauth is set, but sasl is not oauthbearer",
		"kafka://a?sasl=aws-msk-iam":                                              "sasl is aws-msk-iam, but the URL is not kafkas://",
		"kafkas://me:p@a?sasl=aws-msk-iam":                                        "user is set, but sasl is aws-msk-iam",
		"kafka://a?tls.ca_file=ca":                                                "tls is set, but the URL is not kafkas://",
		"kafkas://a?tls.cert_file=c":                                              "tls has only one of cert_file and key_file",
		"kafka://a?topic=%zz":                                                     "url has parameters that cannot be read",
		"kafka://a?client_id=" + strings.Repeat("x", 256):                         "client_id is longer than 255 bytes",
	} {
		if _, err := kafka.ParseURL(u); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: %v; want %q", u, err, want)
		}
	}
}

// Files are read when the sink is opened, not when the first connection is made.
func TestOpenReadsFiles(t *testing.T) {
	cfg := kafka.Config{URL: "kafkas://localhost", TLS: kafka.TLSConfig{CAFile: "/does/not/exist"}}
	if _, err := kafka.Open(cfg, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "tls.ca_file cannot be read") {
		t.Error(err)
	}
}

// An unescaped password is parsed as a port or a path, and the errors of URL parsers quote those.
func TestMistakenURLKeepsItsPassword(t *testing.T) {
	for _, u := range []string{
		"kafka://me:pass/wordy@", "kafka://me:pass?wordy@localhost", "kafka://me:pass%wordy@localhost",
		"kafka://me:pass-wordy@local host", "://me:pass-wordy@localhost", "kafka://me:pass-wordy",
	} {
		if _, err := kafka.ParseURL(u); err == nil {
			t.Errorf("%s was accepted", u)
		} else if strings.Contains(err.Error(), "wordy") {
			t.Errorf("the error shows the password: %v", err)
		}
	}
}
